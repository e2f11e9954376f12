#include "data/token_shard.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace attnres {
namespace {

using Header = std::array<std::int32_t, 256>;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw std::runtime_error(path.string() + ": " + what);
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
  Header header;
  std::memcpy(header.data(), bytes.data(), kHeaderBytes);
  if (header[0] != kMagic)
    refuse(path, "has magic " + std::to_string(header[0]) + " at offset 0; a token shard has " +
                     std::to_string(kMagic));
  if (header[1] != kVersion)
    refuse(path, "has version " + std::to_string(header[1]) + " at offset 4; version " +
                     std::to_string(kVersion) + " (uint16 tokens) is supported");
  const std::size_t count = std::size_t(std::max(header[2], 0));
  const std::size_t expected = kHeaderBytes + count * sizeof(std::uint16_t);
  if (header[2] < 0 || bytes.size() != expected)
    refuse(path, "has " + std::to_string(bytes.size()) + " bytes; its header promises " +
                     std::to_string(header[2]) + " tokens, which is " + std::to_string(expected));
  tokens_ = {reinterpret_cast<const std::uint16_t*>(bytes.data() + kHeaderBytes), count};
  for (std::size_t i = 0; i < count; ++i)
    if (tokens_[i] >= vocabulary)
      refuse(path, "has token id " + std::to_string(tokens_[i]) + " at offset " +
                       std::to_string(kHeaderBytes + i * sizeof(std::uint16_t)) +
                       "; the vocabulary ends at " + std::to_string(vocabulary - 1));
}

bool is_token_shard(const std::filesystem::path& path) {
  std::int32_t magic = 0;
  std::ifstream file(path, std::ios::binary);
  return file.read(reinterpret_cast<char*>(&magic), sizeof magic) && magic == TokenShard::kMagic;
}

void write_token_shard(const std::filesystem::path& path, std::span<const std::uint16_t> tokens) {
  if (tokens.size() > std::size_t(std::numeric_limits<std::int32_t>::max()))
    refuse(path, "a shard holds at most 2^31 - 1 tokens");
  Header header{};
  header[0] = TokenShard::kMagic;
  header[1] = TokenShard::kVersion;
  header[2] = std::int32_t(tokens.size());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(header.data()), TokenShard::kHeaderBytes);
  file.write(reinterpret_cast<const char*>(tokens.data()), std::streamsize(tokens.size_bytes()));
  if (!file.flush()) refuse(path, "could not be written");
}

}  // namespace attnres
