// Cuts text into the pieces inside which byte-pair encoding may merge: regular expressions over
// Unicode classes, matched by PCRE2.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace attnres {

/// GPT-2's expression (Radford et al. 2019, encoder.py).
extern const char* const kGpt2Pattern;

/// A regular expression as tokenizers write them, over UTF-8.  \s is Unicode's White_Space.
class Pattern {
 public:
  /// Throws std::invalid_argument with PCRE2's reason and the offset if it does not compile.
  explicit Pattern(const std::string& expression);
  ~Pattern();
  Pattern(Pattern&&) noexcept;

  /// Calls piece(text) for every match and for what lies between matches, in order: together they
  /// are the whole text.  Bytes that are no UTF-8 match nothing.
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// Patterns one after the other: each cuts the pieces of the one before.
class Pretokenizer {
 public:
  explicit Pretokenizer(std::vector<Pattern> patterns) : patterns_(std::move(patterns)) {}
  void split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  std::vector<Pattern> patterns_;
};

}  // namespace attnres
