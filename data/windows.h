// Non-overlapping windows of T positions over a data set, and the order in which an epoch visits
// them: a seeded permutation, so that an epoch reads everything once and nothing twice.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/token_data.h"

namespace attnres {

/// Window w predicts token i + 1 from token i for i = w*T .. w*T + T - 1.  The last window may be
/// short: its missing positions hold token 0 and the target -1, which carries no loss.
class Windows {
 public:
  /// Throws std::runtime_error if there are fewer than two tokens.
  Windows(TokenData data, std::size_t positions);

  std::size_t count() const { return count_; }
  std::size_t positions() const { return positions_; }
  /// Writes T tokens and T targets; returns how many targets count.
  std::size_t read(std::size_t window, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  TokenData data_;
  std::size_t positions_, count_;
};

/// The place of a training run in its data: all that a checkpoint needs.
struct DataPosition {
  std::uint64_t epoch = 0;
  std::uint64_t window = 0;  ///< windows of this epoch already taken
};

/// Deals windows in epochs; epoch e's order depends on (seed, e) alone.
class WindowLoader {
 public:
  WindowLoader(Windows windows, std::uint64_t seed);

  const Windows& windows() const { return windows_; }
  DataPosition position() const { return position_; }
  void seek(DataPosition position);

  /// Fills `sequences` windows of tokens and targets, moving into the next epoch where one ends;
  /// returns how many targets count.
  std::size_t next(std::size_t sequences, std::span<std::int32_t> tokens,
                   std::span<std::int32_t> targets);

 private:
  void shuffle();

  Windows windows_;
  std::uint64_t seed_;
  DataPosition position_;
  std::vector<std::uint32_t> order_;
};

}  // namespace attnres
