// Documents of text and jsonl files, streamed: however long a file or a document is, no more than
// about a megabyte of it is in memory at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace attnres {

/// Ends a document inside a text file.
inline constexpr std::string_view kDocumentSeparator = "<|endoftext|>\n";

/// A stretch of one document.  Long documents come in several parts, cut after a line end, where no
/// tokenizer's piece goes on.
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
  void fill(std::size_t wanted);

  std::filesystem::path path_;
  std::string key_;
  std::ifstream file_;
  bool json_, at_document_start_;
  std::string buffer_;        // read and not yet given out; begins at offset_
  std::uint64_t offset_ = 0;  // in the file
  std::size_t line_ = 0;
};

}  // namespace attnres
