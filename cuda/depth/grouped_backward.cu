// Grouped backward, the mirror of grouped_forward.cu: the rows G_l of all consumers after a group
// of sources are read once for all of the group.  What is left, the consumers inside the group, is
// added by fused_backward.cu, started from the partial sums.
// Bytes per (group, consumer, channel) of a token in bfloat16: 2 for G; per source 2 for v, and for
// all but the last 4 + 4 for its partial sum.
#include "cuda/depth/dispatch.h"
#include "cuda/depth/source_gradient.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

template <class T, int V, int K, int kGroup>
__global__ void __launch_bounds__(256, 1)
    grouped_gather_kernel(GroupGather<T> group, RowLayout row) {
  __shared__ Exchange exchange;
  Lane<V, K, true> lane(row, exchange);
  const int D = row.channels, H = row.heads;
  const int64_t N = group.tokens;

  for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
    Packed<T, V> v[kGroup][K];
    float r[kGroup], routed[kGroup], x[kGroup][K][V];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const bool wanted = i < group.sources;
      lane.load_row(wanted ? group.source[i] + n * D : nullptr, wanted, v[i]);
      r[i] = wanted ? load_together(group.rstd[i] + n, lane.leads_row) : 0.0f;
      routed[i] = 0;
#pragma unroll
      for (int j = 0; j < K; ++j)
#pragma unroll
        for (int c = 0; c < V; ++c) x[i][j][c] = 0;
    }
    for (int k = 0; k < group.count; ++k) {
      // Everything that this consumer needs is on its way before the first sum waits.
      const int64_t site = group.sites[k];
      Packed<T, V> G[K];
      lane.load_row(group.gradients + (site * N + n) * D, true, G);
      float p[kGroup], a[kGroup], delta = 0, w[K][V];
      if (lane.active)
        delta = load_together(group.delta + (site * N + n) * H + lane.head, lane.leads_head);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int64_t pair = i < group.sources ? group.pairs[k * kMaxGroup + i] : -1;
        a[i] = pair < 0 || !lane.active
                   ? 0.0f
                   : load_together(group.weights + (pair * N + n) * H + lane.head, lane.leads_head);
      }
      lane.load_query(group.folded + site * D, true, w);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        p[i] = 0;
#pragma unroll
        for (int j = 0; j < K; ++j) p[i] = dot(v[i][j], G[j], p[i]);
      }
      lane.head_sum(p);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int64_t pair = i < group.sources ? group.pairs[k * kMaxGroup + i] : -1;
        if (pair < 0 || !lane.active) continue;
        const float e = a[i] * (p[i] - delta);
        if (lane.leads_head) {
          store_one(group.errors + (pair * N + n) * H + lane.head, e);
          routed[i] += a[i] * p[i];
        }
#pragma unroll
        for (int j = 0; j < K; ++j)
#pragma unroll
          for (int c = 0; c < V; ++c) x[i][j][c] += a[i] * G[j][c] + r[i] * e * w[j][c];
      }
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      if (i >= group.sources) continue;
      if (i < group.sources - 1) {
        const float sum = lane.row_sum(routed[i]);
        if (lane.leads_row) store_one(group.partials[i].routed + n, sum);
#pragma unroll
        for (int j = 0; j < K; ++j)
          if (lane.has(j))
            store<float, V>(group.partials[i].dsource + n * D + lane.channel(j), x[i][j]);
        continue;
      }
      write_source_gradient(lane, v[i], x[i], routed[i], r[i], group.carry, group.dsource,
                            group.keep, D, n, true);
    }
  }
}

}  // namespace

template <class T>
void grouped_gather(const RowLayout& row, const GroupGather<T>& group, cudaStream_t stream) {
  with_group_layout(row, [&](auto V, auto K, auto size) {
    launch("grouped_gather", {token_blocks(row, group.tokens), unsigned(row.threads()), 0, stream},
           grouped_gather_kernel<T, V, K, size>, group, row);
  });
}

template void grouped_gather<float>(const RowLayout&, const GroupGather<float>&, cudaStream_t);
template void grouped_gather<__nv_bfloat16>(const RowLayout&, const GroupGather<__nv_bfloat16>&,
                                            cudaStream_t);

}  // namespace attnres::ATTNRES_BACKEND
