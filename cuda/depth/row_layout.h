// How the threads of a block divide a token's row: each depth head belongs to a fixed set of lanes,
// so that a head's dot products never leave them.
#pragma once

#include <optional>

namespace attnres {

/// A team of `warps` warps holds one row of D = H * C channels.  Head h belongs to the lanes
/// h * G .. h * G + G - 1; lane r of them holds the vectors r, r + G, r + 2G, ... of the head,
/// K at most, each of V consecutive channels.
struct RowLayout {
  int channels, heads, head_channels;  ///< D, H, C
  int vector;                          ///< V: 8 where C is divisible by 8, else 4 or 1
  int vectors_per_lane;                ///< K: what a kernel's registers are dimensioned for
  int lanes_per_head;                  ///< G, a power of two
  int warps;                           ///< per team
  int teams;                           ///< tokens that a block works on at a time
  bool wide;  ///< the team is the whole block, and sums may cross its warps

  int threads() const { return 32 * warps * teams; }
};

/// For kernels that handle one site or one source: one warp per token and K up to 5 where that is
/// enough, else several warps.  Nothing where no team of 32 warps can hold the row (H > 1024).
std::optional<RowLayout> site_layout(int channels, int heads);

/// For kernels that keep `group` rows in registers: K = 1 for groups of up to 8, K = 2 for groups
/// of up to 4.  Nothing where 8 warps cannot hold the row.
std::optional<RowLayout> group_layout(int channels, int heads, int group);

inline constexpr int kMaxGroup = 8;

}  // namespace attnres
