#include "data/byte_tokenizer.h"

namespace attnres {

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) {
  std::vector<std::int32_t> tokens;
  tokens.reserve(text.size());
  for (const unsigned char byte : text) tokens.push_back(byte);
  return tokens;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens)
    if (token >= 0 && token < kEndOfDocument) text.push_back(char(token));
  return text;
}

}  // namespace attnres
