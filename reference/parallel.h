// How the reference uses several cores: a range is cut into tiles of a fixed size, and whole tiles
// are dealt to OpenMP threads.  Tiles never share what they write and their size does not depend on
// the number of threads, so neither do the bits of any result.
#pragma once

#include <algorithm>

#include "reference/tensor.h"

namespace attnres {

/// Tokens that one thread takes through an operation at a time: enough for a full matrix product.
inline constexpr Index kTokenTile = 128;
/// Rows of a weight gradient, or channels of a summed-over-tokens vector, that one thread owns.
inline constexpr Index kChannelTile = 32;

/// Threads for every later operation (0: OpenMP's own choice, the number of cores), and one thread
/// inside each matrix product.
void set_threads(int threads);
int thread_count();
/// "OpenBLAS" or "Eigen": who multiplies matrices in this build.
const char* matrix_product_library();

inline Index tile_count(Index items, Index tile) { return (items + tile - 1) / tile; }

/// Calls body(first, count) once for every tile [first, first + count) of [0, items).
/// The body must not throw: OpenMP cannot carry an exception out of a thread.
template <class Body>
void for_each_tile(Index items, Index tile, const Body& body) {
  const Index tiles = tile_count(items, tile);
#pragma omp parallel for schedule(static)
  for (Index t = 0; t < tiles; ++t) body(t * tile, std::min(tile, items - t * tile));
}

}  // namespace attnres
