// The byte tokenizer: one token per byte, and one that opens a document.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace attnres {

struct ByteTokenizer {
  static constexpr std::int32_t kEndOfDocument = 256;
  static constexpr std::int32_t kVocabulary = 257;

  /// One id in [0, 256) per byte.
  static std::vector<std::int32_t> encode(std::string_view text);
  /// The bytes of the ids; kEndOfDocument and padding ids beyond it decode to nothing.
  static std::string decode(std::span<const std::int32_t> tokens);
};

}  // namespace attnres
