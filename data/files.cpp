#include "data/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/token_shard.h"
#include "reference/fnv1a.h"

namespace attnres {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw std::runtime_error(path.string() + ": " + what);
}

}  // namespace

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (std::filesystem::is_directory(path)) fail(path, "is a folder, not a file");
  if (!file) fail(path, "no such file");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

nlohmann::json read_json(const std::filesystem::path& path) {
  try {
    return nlohmann::json::parse(read_file(path));
  } catch (const nlohmann::json::parse_error& error) {
    fail(path, "is not valid JSON at byte " + std::to_string(error.byte));
  }
}

namespace {

// Returns the system's reason for a failure, or nothing.
std::string write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return std::strerror(errno);
    content.remove_prefix(std::size_t(written));
  }
  return {};
}

}  // namespace

void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (descriptor < 0) fail(path, std::string("cannot be written: ") + std::strerror(errno));
  std::string reason;
  for (const std::string_view piece : pieces)
    if (reason.empty()) reason = write_all(descriptor, piece);
  if (reason.empty() && ::fsync(descriptor) != 0) reason = std::strerror(errno);
  if (::close(descriptor) != 0 && reason.empty()) reason = std::strerror(errno);
  if (!reason.empty()) fail(path, "cannot be written: " + reason);
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  write_file(path, std::span(&content, 1));
}

void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::string_view> pieces) {
  if (std::filesystem::is_directory(path)) fail(path, "is a folder; name a file to write");
  std::filesystem::path temporary = path;
  temporary += ".tmp";
  try {
    write_file(temporary, pieces);
    std::filesystem::rename(temporary, path);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  write_file_atomically(path, std::span(&content, 1));
}

void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

std::uint64_t file_hash(const std::filesystem::path& path) {
  const MappedFile file(path);
  Fnv1a hash;
  hash.add(file.bytes());
  return hash.value();
}

std::string to_hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

}  // namespace attnres
