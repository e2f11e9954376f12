#include "data/documents.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace attnres {
namespace {

constexpr std::size_t kPartBytes = 1 << 20;

constexpr std::string_view kEndOfText = "<|endoftext|>";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// How Unicode's white space beyond ASCII begins in UTF-8 (and some punctuation: it does no harm).
bool begins_with_wide_space(std::string_view text) {
  for (const std::string_view lead :
       {"\xc2\x85", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80", "\xe2\x81\x9f", "\xe3\x80\x80"})
    if (text.starts_with(lead)) return true;
  return false;
}

// Whether the text may be cut behind its line end at i: no white space on either side of it.
bool may_cut_after(std::string_view text, std::size_t i) {
  return text[i] == '\n' && !is_space(text[i - 1]) && !is_space(text[i + 1]) &&
         !begins_with_wide_space(text.substr(i - 2, 2)) &&
         !begins_with_wide_space(text.substr(i - 3, 3)) &&
         !begins_with_wide_space(text.substr(i + 1));
}

}  // namespace

DocumentEnd find_document_end(std::string_view text, std::size_t from, bool whole) {
  for (std::size_t at; (at = text.find(kEndOfText, from)) != std::string_view::npos;
       from = at + 1) {
    const std::string_view rest = text.substr(at + kEndOfText.size());
    for (const std::string_view line_end : {"\n", "\r\n"})
      if (rest.starts_with(line_end)) return {at, kEndOfText.size() + line_end.size()};
    if (whole && rest.empty()) return {at, kEndOfText.size()};
  }
  return {};
}

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

bool DocumentReader::next(DocumentPart& part) {
  if (json_) return next_json(part);
  do {  // nothing between two separators is no document
    if (!next_text(part)) return false;
  } while (part.text.empty());
  return true;
}

// Reads until `wanted` bytes are unread, or the file ends.  What was read is dropped when the
// buffer is filled, not with every document.
void DocumentReader::fill(std::size_t wanted) {
  if (unread().size() >= wanted || !file_) return;
  buffer_.erase(0, std::exchange(read_, 0));
  while (buffer_.size() < wanted && file_) {
    const std::size_t before = buffer_.size();
    buffer_.resize(before + kPartBytes);
    file_.read(buffer_.data() + before, std::streamsize(kPartBytes));
    buffer_.resize(before + std::size_t(file_.gcount()));
  }
}

void DocumentReader::drop(std::size_t bytes) {
  read_ += bytes;
  offset_ += bytes;
}

// A part ends with its document, or at the first place past kPartBytes where it may be cut.
bool DocumentReader::next_text(DocumentPart& part) {
  constexpr std::size_t kLookAhead = 16;  // longer than a document's end and than a character
  std::size_t end = 0, skip = 0, searched = 0;
  for (std::size_t wanted = kPartBytes + kLookAhead; end + skip == 0; wanted *= 2) {
    fill(wanted);
    const std::string_view text = unread();
    if (text.empty()) return false;
    const DocumentEnd document = find_document_end(text, searched, !file_);
    for (std::size_t i = kPartBytes; i + 4 < text.size() && i < document.position && end == 0; ++i)
      if (may_cut_after(text, i)) end = i + 1;
    if (end > 0) break;
    if (document.size > 0) {
      end = document.position;
      skip = document.size;
    } else if (!file_) {
      end = text.size();
    } else {
      searched = text.size() - kLookAhead;
    }
  }
  part = {std::string(unread().substr(0, end)), at_document_start_, offset_};
  at_document_start_ = skip > 0;
  drop(end + skip);
  return true;
}

bool DocumentReader::next_json(DocumentPart& part) {
  while (true) {
    std::size_t end;
    for (std::size_t wanted = kPartBytes; (end = unread().find('\n')) == std::string::npos && file_;
         wanted *= 2)
      fill(wanted);
    if (unread().empty()) return false;
    const bool last = end == std::string::npos;
    const std::string line(unread().substr(0, end));
    const std::uint64_t begin = offset_;
    drop(last ? line.size() : end + 1);
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
