// Token shards as llm.c and modded-nanogpt write them: 256 int32 of header (magic 20240520, version
// 1, token count), then uint16 tokens, little-endian; read by memory map, checked when opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

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

class TokenShard {
 public:
  static constexpr std::int32_t kMagic = 20240520, kVersion = 1;
  static constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);

  /// Opens and checks: magic, version, size against the count, and every id against `vocabulary`.
  /// Throws std::runtime_error naming the file and, for an id, its byte offset.
  TokenShard(const std::filesystem::path& path, std::int32_t vocabulary);

  std::span<const std::uint16_t> tokens() const { return tokens_; }

 private:
  MappedFile file_;
  std::span<const std::uint16_t> tokens_;
};

/// Whether the file begins with the shard magic.
bool is_token_shard(const std::filesystem::path& path);

/// Writes a shard; at most 2^31 - 1 tokens.  Throws std::runtime_error if the disk does not take
/// it.
void write_token_shard(const std::filesystem::path& path, std::span<const std::uint16_t> tokens);

}  // namespace attnres
