// Writing so that a crash leaves either the old or the new, never half: temporary name, fsync,
// rename, fsync of the folder.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

namespace attnres {

/// The whole file as text; throws std::runtime_error "PATH: reason".
std::string read_file(const std::filesystem::path& path);
/// Parses a JSON file; a syntax error names the file and the byte.
nlohmann::json read_json(const std::filesystem::path& path);

/// Writes the pieces one after the other into the file, in place, and fsyncs it: for files inside a
/// folder that is still temporary.
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces);
void write_file(const std::filesystem::path& path, std::string_view content);
/// Replaces or creates a file atomically; a failure leaves what was there and nothing else.
void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::string_view> pieces);
void write_file_atomically(const std::filesystem::path& path, std::string_view content);
/// Makes a rename or a new entry in `folder` survive a power cut.
void sync_folder(const std::filesystem::path& folder);

/// FNV-1a, 64 bits, over a file's bytes: finds damage, not malice.
std::uint64_t file_hash(const std::filesystem::path& path);
std::string to_hex(std::uint64_t value);

}  // namespace attnres
