// From a row layout, known at run time, to the kernel that was compiled for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "cuda/depth/row_layout.h"
#include "cuda/device/launch.h"

namespace attnres {

template <int Value>
using Constant = std::integral_constant<int, Value>;

/// Calls body(V, K, wide) with the layout's numbers as compile-time constants.
template <class Body>
void with_site_layout(const RowLayout& row, const Body& body) {
  if (!row.wide) switch (row.vectors_per_lane) {
      case 1:
        return body(Constant<8>(), Constant<1>(), std::false_type());
      case 2:
        return body(Constant<8>(), Constant<2>(), std::false_type());
      case 3:
        return body(Constant<8>(), Constant<3>(), std::false_type());
      case 4:
        return body(Constant<8>(), Constant<4>(), std::false_type());
      case 5:
        return body(Constant<8>(), Constant<5>(), std::false_type());
    }
  else if (row.vector == 8 && row.vectors_per_lane == 2)
    return body(Constant<8>(), Constant<2>(), std::true_type());
  else if (row.vector == 4 && row.vectors_per_lane == 1)
    return body(Constant<4>(), Constant<1>(), std::true_type());
  else if (row.vector == 1 && row.vectors_per_lane == 4)
    return body(Constant<1>(), Constant<4>(), std::true_type());
  throw std::logic_error("no kernel is compiled for this row layout");
}

/// Calls body(V, K, group) for a layout of group_layout.
template <class Body>
void with_group_layout(const RowLayout& row, const Body& body) {
  const auto with_vector = [&](auto K, auto group) {
    switch (row.vector) {
      case 8:
        return body(Constant<8>(), K, group);
      case 4:
        return body(Constant<4>(), K, group);
      default:
        return body(Constant<1>(), K, group);
    }
  };
  if (row.vectors_per_lane == 1) return with_vector(Constant<1>(), Constant<kMaxGroup>());
  return with_vector(Constant<2>(), Constant<4>());
}

/// Threads per block that a kernel of this shape may be launched with: what its registers allow.
template <int V, bool kWide>
inline constexpr int kMaxThreads = !kWide   ? 256
                                   : V == 8 ? 512
                                            : 1024;

/// Rows that a lane has in flight before it uses the first.
template <int K, bool kWide>
inline constexpr int kRowsInFlight = K <= 2 && !kWide ? 4 : 2;

}  // namespace attnres

namespace attnres::ATTNRES_BACKEND {

/// Blocks that walk over the tokens of a launch: a few per multiprocessor, no more than have work.
inline unsigned token_blocks(const RowLayout& row, std::int64_t tokens) {
  return unsigned(std::min<std::int64_t>((tokens + row.teams - 1) / row.teams,
                                         std::int64_t(multiprocessors()) * (row.wide ? 4 : 8)));
}

}  // namespace attnres::ATTNRES_BACKEND
