#include "train/console.h"

#include <unistd.h>

#include <cstdio>

namespace attnres {

Console::Console() : terminal_(::isatty(STDOUT_FILENO) == 1) {}

void Console::line(const std::string& text) {
  if (terminal_ && !live_.empty()) std::printf("\r\033[K");
  std::printf("%s\n", text.c_str());
  if (terminal_ && !live_.empty()) std::printf("%s", live_.c_str());
  std::fflush(stdout);
}

void Console::live(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (terminal_) {
    std::printf("\r\033[K%s", text.c_str());
    live_ = text;
  } else if (now - last_printed_ > std::chrono::seconds(10)) {
    std::printf("%s\n", text.c_str());
    last_printed_ = now;
  }
  std::fflush(stdout);
}

void Console::finish() {
  if (terminal_ && !live_.empty()) std::printf("\n");
  live_.clear();
  std::fflush(stdout);
}

}  // namespace attnres
