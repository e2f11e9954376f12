#include "data/windows.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace attnres {

Windows::Windows(TokenData data, std::size_t positions)
    : data_(std::move(data)), positions_(positions) {
  if (data_.size() < 2)
    throw std::runtime_error("the data set has " + std::to_string(data_.size()) +
                             " tokens; at least two are needed to predict one");
  count_ = (data_.size() - 1 + positions - 1) / positions;
}

std::size_t Windows::read(std::size_t window, std::int32_t* tokens, std::int32_t* targets) const {
  const std::size_t first = window * positions_;
  const std::size_t real = std::min(positions_, data_.size() - 1 - first);
  data_.copy(first, real, tokens);
  data_.copy(first + 1, real, targets);
  std::fill(tokens + real, tokens + positions_, 0);
  std::fill(targets + real, targets + positions_, -1);
  return real;
}

WindowLoader::WindowLoader(Windows windows, std::uint64_t seed)
    : windows_(std::move(windows)), seed_(seed), order_(windows_.count()) {
  shuffle();
}

// Fisher & Yates 1938, on an engine that is the same everywhere (std::shuffle is not).  The odd
// constant, 2^64 over the golden ratio, keeps the engines of neighbouring seeds and epochs apart.
void WindowLoader::shuffle() {
  std::iota(order_.begin(), order_.end(), 0u);
  std::mt19937_64 engine(seed_ + 0x9e3779b97f4a7c15ull * (position_.epoch + 1));
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[engine() % i]);
}

void WindowLoader::seek(DataPosition position) {
  if (position.window > windows_.count())
    throw std::runtime_error("data position " + std::to_string(position.window) +
                             " lies beyond the " + std::to_string(windows_.count()) +
                             " windows of an epoch");
  position_ = position;
  shuffle();
}

std::size_t WindowLoader::next(std::size_t sequences, std::span<std::int32_t> tokens,
                               std::span<std::int32_t> targets) {
  std::size_t counted = 0;
  for (std::size_t s = 0; s < sequences; ++s) {
    if (position_.window == windows_.count()) {
      position_ = {position_.epoch + 1, 0};
      shuffle();
    }
    const std::size_t T = windows_.positions();
    counted += windows_.read(order_[position_.window++], &tokens[s * T], &targets[s * T]);
  }
  return counted;
}

}  // namespace attnres
