// One site, one pass: FlashAttention's recurrence over depth (Dao et al. 2022, arXiv 2205.14135).
// Bytes per (source, channel) of a token in bfloat16: 2 for the source; per site 2 for o.  The
// weights add 4 H / D per source, the folded query stays in registers.
#include "cuda/depth/dispatch.h"
#include "cuda/depth/site_output.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

/// One lane's share of a mix:  m, z of its head;  u of its channels.
template <int V, int K>
struct Mix {
  float maximum = -INFINITY, sum = 0;
  float u[K][V] = {};
};

/// With s_k for U more sources:  m' = max(m, s);  z, u <- e^(m-m') z, u + sum_k e^(s_k-m') (1,
/// v_k).
template <class T, int V, int K, int U>
__device__ __forceinline__ void fold(Mix<V, K>& mix, const float (&s)[U],
                                     const Packed<T, V> (&v)[U][K]) {
  float maximum = mix.maximum;
#pragma unroll
  for (int k = 0; k < U; ++k) maximum = fmaxf(maximum, s[k]);
  const float keep = expf(mix.maximum - maximum);
  float add[U];
#pragma unroll
  for (int k = 0; k < U; ++k) add[k] = expf(s[k] - maximum);
  mix.maximum = maximum;
  mix.sum *= keep;
#pragma unroll
  for (int k = 0; k < U; ++k) mix.sum += add[k];
#pragma unroll
  for (int j = 0; j < K; ++j)
#pragma unroll
    for (int c = 0; c < V; ++c) {
      float u = keep * mix.u[j][c];
#pragma unroll
      for (int k = 0; k < U; ++k) u += add[k] * v[k][j][c];
      mix.u[j][c] = u;
    }
}

/// The mix of the sources before `site.first`, as grouped_forward left it; empty where that is 0.
template <class T, int V, int K, bool kWide>
__device__ __forceinline__ Mix<V, K> begin_mix(const SiteForward<T>& site,
                                               const Lane<V, K, kWide>& lane, int64_t n, int D,
                                               int H) {
  Mix<V, K> mix;
  if (site.first == 0 || !lane.active) return mix;
  mix.maximum = load_together(site.partial.maximum + n * H + lane.head, lane.leads_head);
  mix.sum = load_together(site.partial.sum + n * H + lane.head, lane.leads_head);
#pragma unroll
  for (int j = 0; j < K; ++j) {
    if (!lane.has(j)) continue;
    const auto u = load<float, V>(site.partial.mix + n * D + lane.channel(j));
#pragma unroll
    for (int c = 0; c < V; ++c) mix.u[j][c] = u[c];
  }
  return mix;
}

/// r of a source that no site has read yet: its row is in registers, so it costs no other pass.
template <class T, int V, int K, bool kWide>
__device__ __forceinline__ float first_rstd(const SiteForward<T>& site, Lane<V, K, kWide>& lane,
                                            const Packed<T, V> (&v)[K], int64_t n, int D) {
  const float r = row_rstd(lane, v, site.eps, D);
  if (lane.leads_row) store_one(site.rstd + site.fresh * site.tokens + n, r);
  return r;
}

/// a = e^(s-m) / z: the lanes of a head share its sources.
template <class T, int V, int K, bool kWide>
__device__ __forceinline__ void write_weights(const SiteForward<T>& site, Lane<V, K, kWide>& lane,
                                              const RowLayout& row, const float* logits,
                                              float maximum, float scale, int64_t n) {
  lane.sync();  // the logits are complete
  if (lane.active)
    for (int k = lane.rank; k < site.count; k += row.lanes_per_head) {
      float* const a = site.weights + (k * site.tokens + n) * row.heads + lane.head;
      const float s = k < site.first ? load_together(a, true) : logits[k * row.heads + lane.head];
      store_one(a, expf(s - maximum) * scale);
    }
  lane.sync();  // and done with
}

template <class T, int V, int K, bool kWide>
__global__ void __launch_bounds__(kMaxThreads<V, kWide>, 1)
    fused_forward_kernel(SiteForward<T> site, RowLayout row) {
  constexpr int U = kRowsInFlight<K, kWide>;
  __shared__ Exchange exchange;
  ATTNRES_DYNAMIC_SHARED(float, shared);
  Lane<V, K, kWide> lane(row, exchange);
  const int D = row.channels, H = row.heads;
  const int64_t N = site.tokens;
  float* const logits = shared + lane.team * site.count * H;  // s of this team's token, [count, H]
  float w[K][V];
  lane.load_query(site.folded, true, w);

  for (int64_t n = int64_t(blockIdx.x) * row.teams + lane.team; n < N;
       n += int64_t(gridDim.x) * row.teams) {
    Mix<V, K> mix = begin_mix(site, lane, n, D, H);
    for (int first = site.first; first < site.count; first += U) {
      Packed<T, V> v[U][K];
      float s[U], r[U];
#pragma unroll
      for (int k = 0; k < U; ++k) {
        const bool wanted = first + k < site.count;
        const int source = wanted ? site.sources[first + k] : site.fresh;
        lane.load_row(site.bank + (source * N + n) * D, wanted, v[k]);
        r[k] =
            source == site.fresh ? 0.0f : load_together(site.rstd + source * N + n, lane.leads_row);
      }
#pragma unroll
      for (int k = 0; k < U; ++k) {
        s[k] = 0;
#pragma unroll
        for (int j = 0; j < K; ++j) s[k] = dot(v[k][j], w[j], s[k]);
      }
      lane.head_sum(s);
#pragma unroll
      for (int k = 0; k < U; ++k) {
        const bool wanted = first + k < site.count;
        if (wanted && site.sources[first + k] == site.fresh)
          r[k] = first_rstd(site, lane, v[k], n, D);
        s[k] = wanted ? r[k] * s[k] : -INFINITY;
        if (wanted && lane.leads_head) logits[(first + k) * H + lane.head] = s[k];
      }
      fold(mix, s, v);
    }

    const float scale = lane.active ? 1.0f / mix.sum : 0.0f;
#pragma unroll
    for (int j = 0; j < K; ++j)
#pragma unroll
      for (int c = 0; c < V; ++c) mix.u[j][c] *= scale;
    write_output(lane, mix.u, site.output, site.norm, site.eps, D, n);
    write_weights(site, lane, row, logits, mix.maximum, scale, n);
  }
}

}  // namespace

template <class T>
void fused_forward(const RowLayout& row, const SiteForward<T>& site, cudaStream_t stream) {
  const std::size_t logits = sizeof(float) * std::size_t(row.teams) * site.count * row.heads;
  with_site_layout(row, [&](auto V, auto K, auto wide) {
    launch("fused_forward",
           {token_blocks(row, site.tokens), unsigned(row.threads()), logits, stream},
           fused_forward_kernel<T, V, K, wide>, site, row);
  });
}

template void fused_forward<float>(const RowLayout&, const SiteForward<float>&, cudaStream_t);
template void fused_forward<__nv_bfloat16>(const RowLayout&, const SiteForward<__nv_bfloat16>&,
                                           cudaStream_t);

}  // namespace attnres::ATTNRES_BACKEND
