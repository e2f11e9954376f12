// Documents of text and jsonl files, streamed: of text about a megabyte is in memory at a time, of
// jsonl a line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace attnres {

/// What ends a document inside a text file: "<|endoftext|>" at the end of a line, the line end
/// included, or of the file.
struct DocumentEnd {
  std::size_t position = std::string_view::npos, size = 0;  ///< npos: there is none
};

/// The first at or behind `from`.  `whole`: the text goes to the file's end, so that its last bytes
/// may be one.
DocumentEnd find_document_end(std::string_view text, std::size_t from, bool whole);

/// A stretch of one document.  Long documents come in several parts, cut after a line end between
/// characters that are no white space, where no tokenizer's piece goes on.
struct DocumentPart {
  std::string text;
  bool begins_document = false;
  std::uint64_t offset = 0;  ///< where in the file it begins: reading can go on from here
};

class DocumentReader {
 public:
  /// A file that ends in .jsonl holds one JSON object per line, whose string `key` is a document.
  /// Any other file is text: "<|endoftext|>" at the end of a line separates documents, and so does
  /// the end of the file.  Begins at `offset`, which a DocumentPart gave, 0 for the beginning.
  /// Throws std::runtime_error naming the file.
  DocumentReader(const std::filesystem::path& path, const std::string& key,
                 std::uint64_t offset = 0, bool begins_document = true);

  /// The next part; false at the end.  A line of jsonl that has no such string throws
  /// std::runtime_error with file and line (counted from where reading began).
  bool next(DocumentPart& part);
  /// Bytes read so far, from the beginning of the file.
  std::uint64_t position() const { return offset_; }

 private:
  bool next_text(DocumentPart& part);
  bool next_json(DocumentPart& part);
  std::string_view unread() const { return std::string_view(buffer_).substr(read_); }
  void fill(std::size_t wanted);
  void drop(std::size_t bytes);

  std::filesystem::path path_;
  std::string key_;
  std::ifstream file_;
  bool json_, at_document_start_;
  std::string buffer_;  // of which the first read_ bytes are given out
  std::size_t read_ = 0;
  std::uint64_t offset_ = 0;  // of the next byte, in the file
  std::size_t line_ = 0;
};

}  // namespace attnres
