// Token shards as llm.c and modded-nanogpt write them: 256 int32 of header (magic, version, token
// count), then the ids, little-endian; read by memory map, checked when opened.  Ids have 16 bits
// (magic 20240520, version 1: GPT-2) or 32 (magic 20240801, version 7: Llama 3).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <variant>
#include <vector>

namespace attnres {

/// A read-only file in memory, unmapped at the end of its life.
class MappedFile {
 public:
  /// Throws std::runtime_error with the path and the system's reason.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Token ids where they are stored.
using TokenSpan = std::variant<std::span<const std::uint16_t>, std::span<const std::uint32_t>>;

/// What marks a shard whose ids are stored as Id.
template <class Id>
struct ShardFormat;
template <>
struct ShardFormat<std::uint16_t> {
  static constexpr std::int32_t kMagic = 20240520, kVersion = 1;
};
template <>
struct ShardFormat<std::uint32_t> {
  static constexpr std::int32_t kMagic = 20240801, kVersion = 7;
};

class TokenShard {
 public:
  static constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);

  /// Opens and checks: magic, version, size against the count, and every id against `vocabulary`.
  /// Throws std::runtime_error naming the file and, for an id, its byte offset.
  TokenShard(const std::filesystem::path& path, std::int32_t vocabulary);

  const TokenSpan& tokens() const { return tokens_; }

 private:
  MappedFile file_;
  TokenSpan tokens_;
};

/// Whether the file begins with a shard magic.
bool is_token_shard(const std::filesystem::path& path);

inline constexpr std::size_t kMostShardTokens = 0x7fffffff;  // the header counts in 32 bits

/// Writes a shard of 16-bit or 32-bit ids, at most kMostShardTokens of them, atomically.  Throws
/// std::runtime_error if the disk does not take it.
template <class Id>
void write_token_shard(const std::filesystem::path& path, const std::vector<Id>& tokens);

}  // namespace attnres
