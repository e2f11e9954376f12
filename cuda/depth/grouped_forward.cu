// Phase 1 of two-phase evaluation: every source finished before a group of sites is read once for
// all of them.  Phase 2 is fused_forward.cu, started from the partial mixes.
// Bytes per (group, source, channel) of a token in bfloat16: 2 for the source; per site but the
// first 4 + 4 for its partial mix, written here and read by phase 2.
#include "cuda/depth/dispatch.h"
#include "cuda/depth/site_output.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

template <class T, int V, int K, int kGroup>
__global__ void __launch_bounds__(256, 1)
    grouped_forward_kernel(GroupForward<T> group, RowLayout row) {
  __shared__ Exchange exchange;
  ATTNRES_DYNAMIC_SHARED(float, shared);
  Lane<V, K, true> lane(row, exchange);
  const int D = row.channels, H = row.heads;
  const int64_t N = group.tokens;
  float* const w = shared;                         // folded queries [sites, D]
  float* const logits = shared + group.sites * D;  // s of the first site [count, H]
  for (int i = int(threadIdx.x); i < group.sites * D; i += int(blockDim.x))
    w[i] = load_parameter(group.folded[i / D] + i % D);
  __syncthreads();

  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    float m[kGroup], z[kGroup], u[kGroup][K][V];
#pragma unroll
    for (int l = 0; l < kGroup; ++l) {
      m[l] = -INFINITY;
      z[l] = 0;
#pragma unroll
      for (int j = 0; j < K; ++j)
#pragma unroll
        for (int c = 0; c < V; ++c) u[l][j][c] = 0;
    }
    Packed<T, V> next[K];
    float next_r = 0;
    // A row and its r are on their way while the one before is used.
    const auto fetch = [&](int i) {
      if (i == group.count) return;
      const int source = group.sources[i];
      lane.load_row(group.bank + (source * N + n) * D, true, next);
      if (source != group.fresh)
        next_r = load_together(group.rstd + source * N + n, lane.leads_row);
    };
    fetch(0);
    for (int i = 0; i < group.count; ++i) {
      const int source = group.sources[i];
      Packed<T, V> v[K];
#pragma unroll
      for (int j = 0; j < K; ++j) v[j] = next[j];
      float r = next_r;
      fetch(i + 1);
      float s[kGroup];
#pragma unroll
      for (int l = 0; l < kGroup; ++l) {
        s[l] = 0;
        if (l >= group.sites) continue;
        float query[K][V];
        lane.load_query(w + l * D, false, query);
#pragma unroll
        for (int j = 0; j < K; ++j) s[l] = dot(v[j], query[j], s[l]);
      }
      lane.head_sum(s);
      if (source == group.fresh) {
        r = row_rstd(lane, v, group.eps, D);
        if (lane.leads_row) store_one(group.rstd + source * N + n, r);
      }
#pragma unroll
      for (int l = 0; l < kGroup; ++l) {
        const int position = l < group.sites ? group.positions[i * kMaxGroup + l] : -1;
        if (position < 0) continue;
        const float logit = r * s[l];
        const float maximum = fmaxf(m[l], logit);
        const float keep = expf(m[l] - maximum), add = expf(logit - maximum);
        m[l] = maximum;
        z[l] = keep * z[l] + add;
#pragma unroll
        for (int j = 0; j < K; ++j)
#pragma unroll
          for (int c = 0; c < V; ++c) u[l][j][c] = keep * u[l][j][c] + add * v[j][c];
        if (!lane.leads_head) continue;
        if (l == 0)
          logits[position * H + lane.head] = logit;
        else
          store_one(group.weights[l] + (position * N + n) * H + lane.head, logit);
      }
    }

    const float scale = lane.active ? 1.0f / z[0] : 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j)
#pragma unroll
      for (int c = 0; c < V; ++c) u[0][j][c] *= scale;
    write_output(lane, u[0], group.output, group.norm, group.eps, D, n);
    __syncthreads();
    if (lane.active)
      for (int k = lane.rank; k < group.count; k += row.lanes_per_head)
        if (const int position = group.positions[k * kMaxGroup]; position >= 0)
          store_one(group.weights[0] + (position * N + n) * H + lane.head,
                    expf(logits[position * H + lane.head] - m[0]) * scale);
#pragma unroll
    for (int l = 1; l < kGroup; ++l) {
      if (l >= group.sites) continue;
      const PartialMix& partial = group.partials[l];
#pragma unroll
      for (int j = 0; j < K; ++j)
        if (lane.has(j)) store<float, V>(partial.mix + n * D + lane.channel(j), u[l][j]);
      if (!lane.leads_head) continue;
      store_one(partial.maximum + n * H + lane.head, m[l]);
      store_one(partial.sum + n * H + lane.head, z[l]);
    }
    __syncthreads();  // the logits are done with
  }
}

}  // namespace

template <class T>
void grouped_forward(const RowLayout& row, const GroupForward<T>& group, cudaStream_t stream) {
  const std::size_t shared = sizeof(float) * (std::size_t(group.sites) * row.channels +
                                              std::size_t(group.count) * row.heads);
  with_group_layout(row, [&](auto V, auto K, auto size) {
    launch("grouped_forward",
           {token_blocks(row, group.tokens), unsigned(row.threads()), shared, stream},
           grouped_forward_kernel<T, V, K, size>, group, row);
  });
}

template void grouped_forward<float>(const RowLayout&, const GroupForward<float>&, cudaStream_t);
template void grouped_forward<__nv_bfloat16>(const RowLayout&, const GroupForward<__nv_bfloat16>&,
                                             cudaStream_t);

}  // namespace attnres::ATTNRES_BACKEND
