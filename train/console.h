// What a person sees of a run: lines, and one live line that is rewritten in place on a terminal.
#pragma once

#include <chrono>
#include <string>

namespace attnres {

class Console {
 public:
  Console();

  bool is_terminal() const { return terminal_; }
  /// A finished line; the live line, if any, moves below it.
  void line(const std::string& text);
  /// The live line.  Where output is no terminal it is printed every ten seconds only.
  void live(const std::string& text);
  /// Ends the live line for good.
  void finish();

 private:
  bool terminal_;
  std::string live_;
  std::chrono::steady_clock::time_point last_printed_{};
};

}  // namespace attnres
