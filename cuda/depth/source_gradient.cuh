// How a source's gradient is completed once all its consumers have been gathered.
#pragma once

#include "cuda/depth/kernels.h"
#include "cuda/depth/lane.cuh"

namespace attnres::ATTNRES_BACKEND {

/// With x = sum_l a ∘ G_l + r e ∘ w_l and routed = sum_l sum_h a p (in any lanes, their sum
/// counts):
///   dv = x - (r^2 / D) (<x, v> - routed) v, plus `carry` where it is not nullptr.
/// Written to dsource, and to `keep` where it is not nullptr.  Every lane of the team calls it;
/// `live` is false where there is no token n.
template <class T, int V, int K, bool kWide>
__device__ __forceinline__ void write_source_gradient(Lane<V, K, kWide>& lane,
                                                      const Packed<T, V> (&v)[K], float (&x)[K][V],
                                                      float routed, float r, const T* carry,
                                                      T* dsource, T* keep, int D, int64_t n,
                                                      bool live) {
  float along = -routed;
#pragma unroll
  for (int j = 0; j < K; ++j) along = dot(v[j], x[j], along);
  along = lane.row_sum(along) * r * r / float(D);
  if (!live) return;
  Packed<T, V> carried[K];
  lane.load_row(carry + (carry == nullptr ? 0 : n * D), carry != nullptr, carried);
#pragma unroll
  for (int j = 0; j < K; ++j)
#pragma unroll
    for (int c = 0; c < V; ++c) x[j][c] += carried[j][c] - along * v[j][c];
  lane.store_row(dsource + n * D, x);
  if (keep != nullptr) lane.store_row(keep + n * D, x);
}

}  // namespace attnres::ATTNRES_BACKEND
