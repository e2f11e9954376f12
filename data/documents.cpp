#include "data/documents.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attnres {
namespace {

constexpr std::size_t kPartBytes = 1 << 20;

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

DocumentReader::DocumentReader(const std::filesystem::path& path, const std::string& key,
                               std::uint64_t offset, bool begins_document)
    : path_(path),
      key_(key),
      file_(path, std::ios::binary),
      json_(path.extension() == ".jsonl"),
      at_document_start_(begins_document),
      offset_(offset) {
  if (std::filesystem::is_directory(path))
    throw std::runtime_error(path.string() + ": is a folder; name a text or jsonl file");
  if (!file_) throw std::runtime_error(path.string() + ": no such file");
  file_.seekg(std::streamoff(offset));
}

bool DocumentReader::next(DocumentPart& part) { return json_ ? next_json(part) : next_text(part); }

// Reads until the buffer holds `wanted` bytes, or the file ends.
void DocumentReader::fill(std::size_t wanted) {
  while (buffer_.size() < wanted && file_) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kPartBytes);
    file_.read(buffer_.data() + before, std::streamsize(kPartBytes));
    buffer_.resize(before + std::size_t(file_.gcount()));
  }
}

// A part ends at a separator, or at the first line end past kPartBytes that no white space follows.
bool DocumentReader::next_text(DocumentPart& part) {
  std::size_t end = std::string::npos, skip = 0, searched = 0;
  for (std::size_t wanted = kPartBytes + 2;; wanted *= 2) {
    fill(wanted + kDocumentSeparator.size());
    if (buffer_.empty()) return false;
    const std::size_t separator = buffer_.find(kDocumentSeparator, searched);
    std::size_t line_end = std::string::npos;
    for (std::size_t i = kPartBytes; i + 1 < buffer_.size() && i < separator; ++i)
      if (buffer_[i] == '\n' && !is_space(buffer_[i + 1])) {
        line_end = i + 1;
        break;
      }
    if (line_end != std::string::npos) {
      end = line_end;
    } else if (separator != std::string::npos) {
      end = separator;
      skip = kDocumentSeparator.size();
    } else if (!file_) {
      end = buffer_.size();
    } else {
      searched = buffer_.size() - kDocumentSeparator.size();
      continue;
    }
    break;
  }
  part = {buffer_.substr(0, end), at_document_start_, offset_};
  at_document_start_ = skip > 0;
  buffer_.erase(0, end + skip);
  offset_ += end + skip;
  // Nothing between two separators is no document.
  return part.text.empty() ? next_text(part) : true;
}

bool DocumentReader::next_json(DocumentPart& part) {
  while (true) {
    std::size_t end;
    for (std::size_t wanted = kPartBytes; (end = buffer_.find('\n')) == std::string::npos && file_;
         wanted *= 2)
      fill(wanted);
    if (buffer_.empty()) return false;
    const bool last = end == std::string::npos;
    const std::string line = buffer_.substr(0, end);
    const std::uint64_t begin = offset_;
    offset_ += last ? buffer_.size() : end + 1;
    buffer_.erase(0, last ? buffer_.size() : end + 1);
    ++line_;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains(key_) || !object[key_].is_string())
      throw std::runtime_error(path_.string() + ":" + std::to_string(line_) +
                               ": is no JSON object with a string \"" + key_ + "\"");
    part = {object[key_].get<std::string>(), true, begin};
    return true;
  }
}

}  // namespace attnres
