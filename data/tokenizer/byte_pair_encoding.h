// Byte-pair encoding of one piece of text: the merges of the lowest rank first.
// Sennrich, Haddow & Birch 2016, arXiv 1508.07909; over bytes as in GPT-2 (Radford et al. 2019).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace attnres {

/// Vocabulary and merges; never changes once it is made, so threads share it.
class BytePairEncoding {
 public:
  /// tokens[id]: the bytes of a token; empty where the id has none.  merges[rank]: the pair that
  /// becomes one token.  Throws std::invalid_argument if a printable ASCII character has no token,
  /// or if a merge joins or makes something that is none.  Other bytes may lack one, as control
  /// characters do in SmolLM's vocabulary: they are left out, as Hugging Face's library does.
  BytePairEncoding(std::vector<std::string> tokens,
                   const std::vector<std::pair<std::string, std::string>>& merges);

  /// Appends the ids of one piece.  n log n in its length.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;
  /// The id whose bytes these are, -1 if there is none.
  std::int32_t find(std::string_view bytes) const;
  /// The bytes of an id; empty for ids that have none.
  std::string_view bytes(std::int32_t id) const;
  std::int32_t size() const { return std::int32_t(tokens_.size()); }

 private:
  struct Merge {
    std::int32_t rank, id;
  };
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;

  std::vector<std::string> tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views of tokens_
  std::unordered_map<std::uint64_t, Merge> merges_;         // by (left id, right id)
  std::int32_t byte_ids_[256];
};

/// The printable character that stands for a byte in GPT-2's files, as UTF-8: vocabularies of the
/// byte-level kind are written with these.
std::string byte_symbol(unsigned char byte);
/// Back: the bytes that a token written in these characters stands for.  Throws
/// std::invalid_argument naming a character that stands for no byte.
std::string bytes_of_symbols(std::string_view token);
/// GPT-2 numbers its 256 byte tokens in this order: printable bytes first.
const std::vector<unsigned char>& bytes_in_gpt2_order();

}  // namespace attnres
