#include "cuda/depth/row_layout.h"

#include <bit>

namespace attnres {
namespace {

int widest_vector(int head_channels) {
  return head_channels % 8 == 0 ? 8 : head_channels % 4 == 0 ? 4 : 1;
}

// The fewest vectors per lane that `warps` warps need, 0 if there are too few lanes for the heads.
int vectors_needed(int head_channels, int heads, int vector, int warps) {
  if (32 * warps < heads) return 0;
  const int lanes = int(std::bit_floor(unsigned(32 * warps / heads)));
  return (head_channels / vector + lanes - 1) / lanes;
}

std::optional<RowLayout> smallest_team(int channels, int heads, int vectors_per_lane,
                                       int max_warps) {
  const int C = channels / heads, vector = widest_vector(C);
  for (int warps = 1; warps <= max_warps; ++warps) {
    const int needed = vectors_needed(C, heads, vector, warps);
    if (needed == 0 || needed > vectors_per_lane) continue;
    return RowLayout{channels,
                     heads,
                     C,
                     vector,
                     vectors_per_lane,
                     int(std::bit_floor(unsigned(32 * warps / heads))),
                     warps,
                     1,
                     true};
  }
  return std::nullopt;
}

}  // namespace

std::optional<RowLayout> site_layout(int channels, int heads) {
  const int C = channels / heads, vector = widest_vector(C);
  if (vector == 8) {
    const int needed = vectors_needed(C, heads, vector, 1);
    if (needed >= 1 && needed <= 5)
      return RowLayout{channels, heads,  C,
                       vector,   needed, int(std::bit_floor(unsigned(32 / heads))),
                       1,        8,      false};
  }
  // Registers bound the team: 2 vectors of 8 leave room for 16 warps.
  if (vector == 8) return smallest_team(channels, heads, 2, 16);
  return smallest_team(channels, heads, vector == 4 ? 1 : 4, 32);
}

std::optional<RowLayout> group_layout(int channels, int heads, int group) {
  if (const auto layout = smallest_team(channels, heads, 1, 8); layout && group <= kMaxGroup)
    return layout;
  return group <= 4 ? smallest_team(channels, heads, 2, 8) : std::nullopt;
}

}  // namespace attnres
