#include "data/tokenizer/pretokenizer.h"

#include <stdexcept>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace attnres {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

// Unicode's White_Space.  PCRE2's own \s also takes U+180E, which Unicode moved out in 6.3.
constexpr const char* kWhiteSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// \s and \S spelled out, inside and outside of character classes.
std::string with_white_space(const std::string& expression) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char escaped = expression[++i];
      if (escaped == 's')
        result += in_class ? kWhiteSpace : "[" + std::string(kWhiteSpace) + "]";
      else if (escaped == 'S' && !in_class)
        result += "[^" + std::string(kWhiteSpace) + "]";
      else
        result += {c, escaped};
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    result += c;
  }
  return result;
}

}  // namespace

struct Pattern::Compiled {
  pcre2_code* code = nullptr;
  ~Compiled() { pcre2_code_free(code); }
};

Pattern::Pattern(const std::string& expression) : compiled_(std::make_unique<Compiled>()) {
  const std::string spelled = with_white_space(expression);
  int error = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF, &error, &offset, nullptr);
  if (compiled_->code == nullptr) {
    PCRE2_UCHAR reason[200];
    pcre2_get_error_message(error, reason, sizeof reason);
    throw std::invalid_argument("the expression " + expression +
                                " does not compile: " + reinterpret_cast<const char*>(reason));
  }
  pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE);  // where it cannot, matching is slower
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;

void Pattern::split(std::string_view text,
                    const std::function<void(std::string_view)>& piece) const {
  const auto free_match = [](pcre2_match_data* data) { pcre2_match_data_free(data); };
  const std::unique_ptr<pcre2_match_data, decltype(free_match)> match(
      pcre2_match_data_create(1, nullptr), free_match);
  const PCRE2_SIZE* const range = pcre2_get_ovector_pointer(match.get());
  std::size_t done = 0;
  while (done < text.size()) {
    const int found = pcre2_match(compiled_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), done, PCRE2_NOTEMPTY, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw std::runtime_error("matching text failed with PCRE2's error " + std::to_string(found));
    if (range[0] > done) piece(text.substr(done, range[0] - done));
    piece(text.substr(range[0], range[1] - range[0]));
    done = range[1];
  }
  if (done < text.size()) piece(text.substr(done));
}

void Pretokenizer::split(std::string_view text,
                         const std::function<void(std::string_view)>& piece) const {
  const std::function<void(std::size_t, std::string_view)> cut = [&](std::size_t i,
                                                                     std::string_view part) {
    if (i == patterns_.size()) return piece(part);
    patterns_[i].split(part, [&](std::string_view next) { cut(i + 1, next); });
  };
  cut(0, text);
}

}  // namespace attnres
