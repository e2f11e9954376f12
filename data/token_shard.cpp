#include "data/token_shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/files.h"

namespace attnres {
namespace {

using Header = std::array<std::int32_t, 256>;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw std::runtime_error(path.string() + ": " + what);
}

Header header_of(std::span<const std::byte> bytes) {
  Header header;
  std::memcpy(header.data(), bytes.data(), sizeof header);
  return header;
}

template <class Id>
std::span<const Id> checked_tokens(const std::filesystem::path& path,
                                   std::span<const std::byte> bytes, std::int32_t vocabulary) {
  const Header header = header_of(bytes);
  if (header[1] != ShardFormat<Id>::kVersion)
    refuse(path, "has version " + std::to_string(header[1]) + " at offset 4; version " +
                     std::to_string(ShardFormat<Id>::kVersion) + " goes with its magic");
  const std::size_t count = std::size_t(std::max(header[2], 0));
  const std::size_t expected = TokenShard::kHeaderBytes + count * sizeof(Id);
  if (header[2] < 0 || bytes.size() != expected)
    refuse(path, "has " + std::to_string(bytes.size()) + " bytes; its header promises " +
                     std::to_string(header[2]) + " tokens, which is " + std::to_string(expected));
  const auto* tokens = reinterpret_cast<const Id*>(bytes.data() + TokenShard::kHeaderBytes);
  for (std::size_t i = 0; i < count; ++i)
    if (tokens[i] >= std::uint32_t(vocabulary))
      refuse(path, "has token id " + std::to_string(tokens[i]) + " at offset " +
                       std::to_string(TokenShard::kHeaderBytes + i * sizeof(Id)) +
                       "; the vocabulary ends at " + std::to_string(vocabulary - 1));
  return {tokens, count};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY);
  if (descriptor < 0) refuse(path, std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status {};
  ::fstat(descriptor, &status);
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    refuse(path, "is not a file");
  }
  size_ = std::size_t(status.st_size);
  void* address =
      size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  ::close(descriptor);
  if (address == MAP_FAILED) refuse(path, std::string("cannot be mapped: ") + std::strerror(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

TokenShard::TokenShard(const std::filesystem::path& path, std::int32_t vocabulary) : file_(path) {
  const auto bytes = file_.bytes();
  if (bytes.size() < kHeaderBytes)
    refuse(path, "has " + std::to_string(bytes.size()) + " bytes; a token shard begins with a " +
                     std::to_string(kHeaderBytes) + "-byte header");
  const std::int32_t magic = header_of(bytes)[0];
  if (magic == ShardFormat<std::uint16_t>::kMagic)
    tokens_ = checked_tokens<std::uint16_t>(path, bytes, vocabulary);
  else if (magic == ShardFormat<std::uint32_t>::kMagic)
    tokens_ = checked_tokens<std::uint32_t>(path, bytes, vocabulary);
  else
    refuse(path, "has magic " + std::to_string(magic) + " at offset 0; a token shard has " +
                     std::to_string(ShardFormat<std::uint16_t>::kMagic) + " or " +
                     std::to_string(ShardFormat<std::uint32_t>::kMagic));
}

bool is_token_shard(const std::filesystem::path& path) {
  std::int32_t magic = 0;
  std::ifstream file(path, std::ios::binary);
  return file.read(reinterpret_cast<char*>(&magic), sizeof magic) &&
         (magic == ShardFormat<std::uint16_t>::kMagic ||
          magic == ShardFormat<std::uint32_t>::kMagic);
}

template <class Id>
void write_token_shard(const std::filesystem::path& path, const std::vector<Id>& tokens) {
  if (tokens.size() > kMostShardTokens) refuse(path, "a shard holds at most 2^31 - 1 tokens");
  Header header{};
  header[0] = ShardFormat<Id>::kMagic;
  header[1] = ShardFormat<Id>::kVersion;
  header[2] = std::int32_t(tokens.size());
  const auto text_of = [](const auto& values) {
    return std::string_view(reinterpret_cast<const char*>(values.data()),
                            values.size() * sizeof values[0]);
  };
  const std::string_view pieces[] = {text_of(header), text_of(tokens)};
  write_file_atomically(path, pieces);
}

template void write_token_shard(const std::filesystem::path&, const std::vector<std::uint16_t>&);
template void write_token_shard(const std::filesystem::path&, const std::vector<std::uint32_t>&);

}  // namespace attnres
