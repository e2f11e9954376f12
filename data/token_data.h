// A data set as one long sequence of token ids, whatever it came from: text files through the byte
// tokenizer, or token shards mapped from disk.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/token_shard.h"

namespace attnres {

/// Tokens [0, size) of the pieces, one after the other.  Pieces are shared, so parts are cheap.
class TokenData {
 public:
  std::size_t size() const { return size_; }
  std::int32_t operator[](std::size_t i) const;
  /// Copies tokens first .. first + count - 1, which must exist.
  void copy(std::size_t first, std::size_t count, std::int32_t* out) const;
  /// The part [first, first + count).
  TokenData part(std::size_t first, std::size_t count) const;
  /// FNV-1a over the ids as they are stored: the data set's name in logs and checkpoints.
  std::uint64_t hash() const;

  void append(const std::shared_ptr<const TokenShard>& shard);
  void append(std::vector<std::uint16_t> tokens);

 private:
  struct Piece {
    std::shared_ptr<const void> owner;
    TokenSpan tokens;
    std::size_t first;  // index of its first token in the whole

    std::size_t size() const {
      return std::visit([](auto ids) { return ids.size(); }, tokens);
    }
  };
  void append(std::shared_ptr<const void> owner, const TokenSpan& tokens);
  const Piece& piece_of(std::size_t i) const;

  std::vector<Piece> pieces_;
  std::size_t size_ = 0;
};

/// Training and validation tokens that share none.
struct DataSplit {
  TokenData train, validation;
  bool bytes = false;           ///< ids are bytes: bits per byte can be told
  std::int32_t vocabulary = 0;  ///< ids the data may use
};

/// What training reads: text files (bytes; "<|endoftext|>" at the end of a line separates
/// documents, and so does the end of a file), or token shards.  Without validation files the last
/// tenth is held out: the cut falls between documents if one ends within 2 % of the corpus from it,
/// else between paragraphs, else where it falls.  `shard_vocabulary` bounds the ids of shards.
/// Throws std::runtime_error naming the file that is missing, empty or malformed.
DataSplit load_data(const std::vector<std::filesystem::path>& train,
                    const std::vector<std::filesystem::path>& validation,
                    std::int32_t shard_vocabulary);

/// The ids of one text or of shards, without a split: what `attnres eval` reads.
DataSplit load_evaluation_data(const std::vector<std::filesystem::path>& files,
                               std::int32_t shard_vocabulary);

}  // namespace attnres
