// How the query gradient's work is cut: known to its kernel and to the byte model.
#pragma once

#include <algorithm>
#include <cstddef>

namespace attnres {

inline constexpr int kQueryThreads = 512;                 // per block
inline constexpr int kQueryConsumersPerThread = 40;       // sums that a thread holds
inline constexpr int kQueryTile = 256;                    // channels per block, at most
inline constexpr std::size_t kQuerySharedFloats = 12288;  // e and v of a batch of tokens, 48 KiB

/// A tile covers whole heads, so that e is read once, unless one head is larger than a tile.
struct QueryTiling {
  int channels;   ///< per block
  int heads;      ///< whose e a block needs, at most
  int tiles;      ///< blocks side by side
  int consumers;  ///< in one pass over the tokens
  int batch;      ///< tokens in shared memory at a time

  QueryTiling(int D, int H, int all_consumers) {
    const int C = D / H;
    channels = C >= kQueryTile ? kQueryTile : C * std::min(kQueryTile / C, H);
    heads = C >= kQueryTile ? (C % kQueryTile == 0 ? 1 : 2) : channels / C;
    tiles = (D + channels - 1) / channels;
    consumers = std::min(all_consumers, kQueryThreads / channels * kQueryConsumersPerThread);
    const auto per_token = [&] { return std::size_t(channels + consumers * heads); };
    while (per_token() > kQuerySharedFloats) consumers = (consumers + 1) / 2;
    batch = int(std::min<std::size_t>(kQuerySharedFloats / per_token(), 16));
  }

  /// The first head of a tile, and how many it touches.
  int first_head(int tile, int C) const { return tile * channels / C; }
  int heads_of(int tile, int D, int C) const {
    return (std::min((tile + 1) * channels, D) - 1) / C - first_head(tile, C) + 1;
  }
};

}  // namespace attnres
