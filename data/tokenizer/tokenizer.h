// Text to token ids and back, as the models' own tokenizers do it, exact to the id: GPT-2's, and
// any Hugging Face tokenizer.json of the byte-level BPE kind (GPT-2, SmolLM, Llama 3, Qwen).
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "data/tokenizer/byte_pair_encoding.h"
#include "data/tokenizer/pretokenizer.h"

namespace attnres {

/// What tokens such as <|endoftext|> in a text mean.
enum class SpecialTokens {
  as_text,   ///< ordinary characters: what a corpus may contain
  as_tokens  ///< the token: what a prompt may contain
};

class Tokenizer {
 public:
  /// ByteVocabulary: ids 0-255 are bytes, 256 is <|endoftext|>.
  static Tokenizer bytes();
  /// GPT-2's, from the merges that come with the project.
  static Tokenizer gpt2();
  /// A merges file like GPT-2's vocab.bpe: ids 0-255 are bytes, then the merges, then
  /// <|endoftext|>.  Throws std::runtime_error naming file and line.
  static Tokenizer from_merges(const std::filesystem::path& path);
  /// A tokenizer.json, or a folder that has one.  What it asks for beyond byte-level BPE (other
  /// models, normalizers, pre-tokenizers) throws std::runtime_error by name.
  static Tokenizer from_huggingface(const std::filesystem::path& path);
  /// "bytes", "gpt2", a merges file, a tokenizer.json or a folder that has one.
  static Tokenizer open(const std::string& name);
  /// The file that open(name) reads, if it reads any.
  static std::optional<std::filesystem::path> file_of(const std::string& name);

  std::vector<std::int32_t> encode(std::string_view text,
                                   SpecialTokens special = SpecialTokens::as_text) const;
  /// The bytes of the ids, special tokens as they are written.  Ids beyond the vocabulary throw
  /// std::out_of_range.
  std::string decode(std::span<const std::int32_t> ids) const;

  /// One more than the largest id.
  std::int32_t vocabulary() const { return vocabulary_; }
  /// The id of a special token, -1 if there is none of this name.
  std::int32_t special(std::string_view name) const;
  /// The token that separates documents: <|endoftext|> or its like; -1 if the tokenizer has none.
  std::int32_t end_of_text() const;

 private:
  friend class Encoder;
  struct Special {
    std::string text;
    std::int32_t id;
  };
  Tokenizer(BytePairEncoding bpe, Pretokenizer pretokenizer, std::vector<Special> specials);
  std::string normalized(std::string_view text) const;

  std::shared_ptr<const BytePairEncoding> bpe_;
  std::shared_ptr<const Pretokenizer> pretokenizer_;
  std::vector<Special> specials_;  // longest first: the first that fits is the one meant
  bool compose_ = false;           // Unicode normalization form C before anything else
  bool whole_pieces_ = false;      // a piece that is a token is not taken apart and merged again
  std::int32_t vocabulary_ = 0;
};

/// Encodes for one thread, and remembers the ids of pieces that it has seen: words come again.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Appends the ids of the text.
  void encode(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& ids);

 private:
  void encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids);
  void encode_piece(std::string_view piece, std::vector<std::int32_t>& ids);

  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  const Tokenizer& tokenizer_;
  std::unordered_map<std::string, std::vector<std::int32_t>, Hash, std::equal_to<>> seen_;
};

}  // namespace attnres
