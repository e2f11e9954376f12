#include "data/tokenizer/tokenizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "data/byte_vocabulary.h"

namespace attnres {
namespace {

// Pieces that are remembered: short ones, and no more than fit a core's cache a few times over.
constexpr std::size_t kLongestRemembered = 48, kMostRemembered = 1 << 16;

}  // namespace

Tokenizer::Tokenizer(BytePairEncoding bpe, Pretokenizer pretokenizer, std::vector<Special> specials)
    : bpe_(std::make_shared<BytePairEncoding>(std::move(bpe))),
      pretokenizer_(std::make_shared<Pretokenizer>(std::move(pretokenizer))),
      specials_(std::move(specials)),
      vocabulary_(bpe_->size()) {
  std::stable_sort(specials_.begin(), specials_.end(), [](const Special& a, const Special& b) {
    return a.text.size() > b.text.size();
  });
  for (const Special& special : specials_) vocabulary_ = std::max(vocabulary_, special.id + 1);
}

Tokenizer Tokenizer::bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, char(byte));
  std::vector<Pattern> patterns;
  patterns.emplace_back(kGpt2Pattern);  // any would do: nothing is merged
  return Tokenizer(BytePairEncoding(std::move(tokens), {}), Pretokenizer(std::move(patterns)),
                   {{"<|endoftext|>", ByteVocabulary::kEndOfDocument}});
}

Tokenizer Tokenizer::gpt2() { return from_merges(ATTNRES_GPT2_MERGES); }

Tokenizer Tokenizer::from_merges(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path.string() + ": no such file");
  std::vector<std::string> tokens;
  for (const unsigned char byte : bytes_in_gpt2_order()) tokens.emplace_back(1, char(byte));
  std::vector<std::pair<std::string, std::string>> merges;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || (number == 1 && line.starts_with("#version"))) continue;
    const std::size_t space = line.find(' ');
    const auto fail = [&](const std::string& what) {
      throw std::runtime_error(path.string() + ":" + std::to_string(number) + ": " + what);
    };
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos)
      fail("is no merge: two tokens and one space between them");
    try {
      merges.emplace_back(bytes_of_symbols(line.substr(0, space)),
                          bytes_of_symbols(line.substr(space + 1)));
    } catch (const std::invalid_argument& error) {
      fail(error.what());
    }
    tokens.push_back(merges.back().first + merges.back().second);
  }
  if (merges.empty()) throw std::runtime_error(path.string() + ": holds no merges");
  const auto end_of_text = std::int32_t(tokens.size());
  std::vector<Pattern> patterns;
  patterns.emplace_back(kGpt2Pattern);
  try {
    return Tokenizer(BytePairEncoding(std::move(tokens), merges), Pretokenizer(std::move(patterns)),
                     {{"<|endoftext|>", end_of_text}});
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

std::optional<std::filesystem::path> Tokenizer::file_of(const std::string& name) {
  if (name == "bytes") return std::nullopt;
  if (name == "gpt2") return ATTNRES_GPT2_MERGES;
  const std::filesystem::path path(name);
  return std::filesystem::is_directory(path) ? path / "tokenizer.json" : path;
}

Tokenizer Tokenizer::open(const std::string& name) {
  const auto file = file_of(name);
  if (!file) return bytes();
  return file->extension() == ".json" ? from_huggingface(*file) : from_merges(*file);
}

std::int32_t Tokenizer::special(std::string_view name) const {
  for (const Special& special : specials_)
    if (special.text == name) return special.id;
  return -1;
}

std::int32_t Tokenizer::end_of_text() const {
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>"})
    if (const std::int32_t id = special(name); id >= 0) return id;
  return -1;
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, SpecialTokens special) const {
  std::vector<std::int32_t> ids;
  Encoder(*this).encode(text, special, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocabulary_)
      throw std::out_of_range("token id " + std::to_string(id) + "; the vocabulary ends at " +
                              std::to_string(vocabulary_ - 1));
    text += bpe_->bytes(id);  // nothing for a special token
    if (!bpe_->bytes(id).empty()) continue;
    for (const Special& special : specials_)
      if (special.id == id) text += special.text;
  }
  return text;
}

// Form C of text that is UTF-8; other text stays as it is.
std::string Tokenizer::normalized(std::string_view text) const {
  utf8proc_uint8_t* composed = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   utf8proc_ssize_t(text.size()), &composed,
                                   utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (length < 0) return std::string(text);
  std::string result(reinterpret_cast<const char*>(composed), std::size_t(length));
  std::free(composed);
  return result;
}

void Encoder::encode(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& ids) {
  if (special == SpecialTokens::as_text) return encode_ordinary(text, ids);
  while (!text.empty()) {
    std::size_t at = std::string_view::npos;
    const Tokenizer::Special* first = nullptr;
    for (const auto& candidate : tokenizer_.specials_)  // longest first: it wins where two begin
      if (const std::size_t found = text.find(candidate.text); found < at) {
        at = found;
        first = &candidate;
      }
    encode_ordinary(text.substr(0, at), ids);
    if (first == nullptr) return;
    ids.push_back(first->id);
    text.remove_prefix(at + first->text.size());
  }
}

void Encoder::encode_ordinary(std::string_view text, std::vector<std::int32_t>& ids) {
  if (text.empty()) return;
  std::string composed;
  if (tokenizer_.compose_) {
    composed = tokenizer_.normalized(text);
    text = composed;
  }
  tokenizer_.pretokenizer_->split(text, [&](std::string_view piece) { encode_piece(piece, ids); });
}

void Encoder::encode_piece(std::string_view piece, std::vector<std::int32_t>& ids) {
  if (piece.size() > kLongestRemembered) return tokenizer_.bpe_->encode(piece, ids);
  if (const auto found = seen_.find(piece); found != seen_.end()) {
    ids.insert(ids.end(), found->second.begin(), found->second.end());
    return;
  }
  const std::size_t before = ids.size();
  const std::int32_t whole = tokenizer_.whole_pieces_ ? tokenizer_.bpe_->find(piece) : -1;
  if (whole >= 0)
    ids.push_back(whole);
  else
    tokenizer_.bpe_->encode(piece, ids);
  if (seen_.size() >= kMostRemembered) seen_.clear();
  seen_.emplace(piece, std::vector<std::int32_t>(ids.begin() + std::ptrdiff_t(before), ids.end()));
}

}  // namespace attnres
