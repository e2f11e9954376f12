// Text for people: printf formats into strings, and numbers with units.
#pragma once

#include <cstdio>
#include <string>

namespace attnres {

/// printf into a string.
template <class... Arguments>
std::string format(const char* pattern, Arguments... arguments) {
  const int size = std::snprintf(nullptr, 0, pattern, arguments...);
  std::string text(std::size_t(size), '\0');
  std::snprintf(text.data(), text.size() + 1, pattern, arguments...);
  return text;
}
inline std::string format(const char* text) { return text; }

/// "1.23 M", "45.6 k": three digits and a decimal prefix.
inline std::string with_prefix(double value) {
  const char* prefixes[] = {"", " k", " M", " G", " T", " P"};
  int i = 0;
  while (value >= 999.5 && i < 5) value /= 1000, ++i;
  return format(value >= 99.95 || i == 0 ? "%.0f%s"
                : value >= 9.995         ? "%.1f%s"
                                         : "%.2f%s",
                value, prefixes[i]);
}

/// "12.3 MiB".
inline std::string mebibytes(double bytes) { return format("%.1f MiB", bytes / (1 << 20)); }

/// "2m 05s", "1h 02m".
inline std::string duration(double seconds) {
  const long s = long(seconds + 0.5);
  if (s >= 3600) return format("%ldh %02ldm", s / 3600, s / 60 % 60);
  return format("%ldm %02lds", s / 60, s % 60);
}

}  // namespace attnres
