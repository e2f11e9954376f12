// FNV-1a, 64 bits (Fowler, Noll & Vo 1991): names streams of random numbers, data sets and files.
// It finds damage, not malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace attnres {

/// hash = (hash xor item) * prime, item by item; the same items in any portions give the same hash.
class Fnv1a {
 public:
  void add(std::uint64_t item) { hash_ = (hash_ ^ item) * 1099511628211ull; }
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) add(std::uint64_t(byte));
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 14695981039346656037ull;
};

}  // namespace attnres
