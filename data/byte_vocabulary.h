// The ids of text that needs no tokenizer's files: one per byte, and one that opens a document.
#pragma once

#include <cstdint>

namespace attnres {

struct ByteVocabulary {
  static constexpr std::int32_t kEndOfDocument = 256, kSize = 257;
};

}  // namespace attnres
