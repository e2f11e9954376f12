// What a site does once its mix is complete: o is written, and the pre-norm that follows takes it
// from registers.
#pragma once

#include "cuda/depth/kernels.h"
#include "cuda/depth/lane.cuh"

namespace attnres::ATTNRES_BACKEND {

/// output[n] = o;  with a pre-norm:  normed[n] = rstd * o ∘ gain,  rstd = (mean(o^2) + eps)^(-1/2).
/// Every lane of the team calls it.
template <class T, int V, int K, bool kWide>
__device__ __forceinline__ void write_output(Lane<V, K, kWide>& lane, const float (&o)[K][V],
                                             T* output, const PreNorm<T>& norm, float eps, int D,
                                             int64_t n) {
  lane.store_row(output + n * D, o);
  if (norm.gain == nullptr) return;
  float squares = 0;
#pragma unroll
  for (int j = 0; j < K; ++j)
#pragma unroll
    for (int c = 0; c < V; ++c) squares += o[j][c] * o[j][c];
  const float rstd = rsqrtf(lane.row_sum(squares) / float(D) + eps);
  float normed[K][V];
  lane.load_parameters(norm.gain, normed);
#pragma unroll
  for (int j = 0; j < K; ++j)
#pragma unroll
    for (int c = 0; c < V; ++c) normed[j][c] *= rstd * o[j][c];
  lane.store_row(norm.normed + n * D, normed);
  if (lane.leads_row) store_one(norm.rstd + n, rstd);
}

}  // namespace attnres::ATTNRES_BACKEND
