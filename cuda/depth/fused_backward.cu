// The gather form: one pass over a source and the gradients of its consumers gives dv in registers.
// Bytes per (source, consumer, channel) of a token in bfloat16: 2 for G; per source 2 for v and 2
// for dv; per site 4 for the row pass that keeps G and delta.
#include "cuda/depth/dispatch.h"
#include "cuda/depth/source_gradient.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

template <class T, int V, int K, bool kWide>
__global__ void __launch_bounds__(kMaxThreads<V, kWide>, 1)
    keep_gradient_kernel(KeepGradient<T> keep, RowLayout row) {
  __shared__ Exchange exchange;
  Lane<V, K, kWide> lane(row, exchange);
  const int D = row.channels, H = row.heads;
  float gain[K][V], dgain[K][V] = {};
  const bool normed = keep.norm.gain != nullptr;
  if (normed) lane.load_parameters(keep.norm.gain, gain);

  for (int64_t n = int64_t(blockIdx.x) * row.teams + lane.team; n < keep.tokens;
       n += int64_t(gridDim.x) * row.teams) {
    Packed<T, V> in[K], o[K];
    lane.load_row(keep.incoming + n * D, true, in);
    lane.load_row(keep.output + n * D, true, o);
    float G[K][V];
#pragma unroll
    for (int j = 0; j < K; ++j)
#pragma unroll
      for (int c = 0; c < V; ++c) G[j][c] = in[j][c];
    if (normed) {
      const float r = load_together(keep.norm.rstd + n, lane.leads_row);
      float along = 0;
#pragma unroll
      for (int j = 0; j < K; ++j)
#pragma unroll
        for (int c = 0; c < V; ++c) {
          dgain[j][c] += r * G[j][c] * o[j][c];
          G[j][c] *= gain[j][c];
          along += G[j][c] * o[j][c];
        }
      along = lane.row_sum(along) * r * r * r / float(D);
#pragma unroll
      for (int j = 0; j < K; ++j)
#pragma unroll
        for (int c = 0; c < V; ++c) G[j][c] = r * G[j][c] - along * o[j][c];
    }
    if (normed || keep.gradient != keep.incoming) lane.store_row(keep.gradient + n * D, G);
    // delta from G as the sources will read it: then sum_i a_i p_i = delta to the last bit of o.
    float delta[1] = {0};
#pragma unroll
    for (int j = 0; j < K; ++j)
#pragma unroll
      for (int c = 0; c < V; ++c) delta[0] += rounded<T>(G[j][c]) * o[j][c];
    lane.head_sum(delta);
    if (lane.leads_head) store_one(keep.delta + n * H + lane.head, delta[0]);
  }
  if (!normed) return;
  float* const partial = keep.dgain_partials + (blockIdx.x * row.teams + lane.team) * int64_t(D);
#pragma unroll
  for (int j = 0; j < K; ++j)
#pragma unroll
    for (int c = 0; c < V; ++c)
      if (lane.has(j)) store_parameter(partial + lane.channel(j) + c, dgain[j][c]);
}

/// Copies the folded queries of the consumers `first` and on into shared memory [U, D], for all
/// teams of the block, and waits until they are there.
template <class T, int U>
__device__ __forceinline__ void stage_queries(const Gather<T>& gather, int first, int D,
                                              float* queries) {
  __syncthreads();  // the previous ones are done with
  for (int u = 0; u < U && first + u < gather.count; ++u) {
    const float* const w = gather.folded + int64_t(gather.consumers[first + u].site) * D;
    for (int c = 4 * int(threadIdx.x); c < D; c += 4 * int(blockDim.x)) {
      *reinterpret_cast<float4*>(queries + u * D + c) = *reinterpret_cast<const float4*>(w + c);
      count_parameters(sizeof(float4));
    }
  }
  __syncthreads();
}

/// Adds what the consumers after the source's group have contributed (grouped_backward.cu).
template <int V, int K, bool kWide>
__device__ __forceinline__ void add_partial(const PartialGather& partial,
                                            const Lane<V, K, kWide>& lane, float (&x)[K][V],
                                            float& routed, int64_t n, int D) {
#pragma unroll
  for (int j = 0; j < K; ++j) {
    if (!lane.has(j)) continue;
    const auto later = load<float, V>(partial.dsource + n * D + lane.channel(j));
#pragma unroll
    for (int c = 0; c < V; ++c) x[j][c] += later[c];
  }
  if (lane.leads_row) routed += load_together(partial.routed + n, true);
}

template <class T, int V, int K, bool kWide>
__global__ void __launch_bounds__(kMaxThreads<V, kWide>, 1)
    fused_gather_kernel(Gather<T> gather, RowLayout row) {
  constexpr int U = kRowsInFlight<K, kWide>;
  __shared__ Exchange exchange;
  ATTNRES_DYNAMIC_SHARED(float, queries);  // w of U consumers [U, D]
  Lane<V, K, kWide> lane(row, exchange);
  const int D = row.channels, H = row.heads;
  const int64_t N = gather.tokens;

  // Every team of the block walks the consumers together: w_l is fetched once for all of them.
  for (int64_t base = int64_t(blockIdx.x) * row.teams; base < N;
       base += int64_t(gridDim.x) * row.teams) {
    const int64_t n = base + lane.team;
    const bool live = n < N;
    Packed<T, V> v[K];
    lane.load_row(gather.source + n * D, live, v);
    const float r = live ? load_together(gather.rstd + n, lane.leads_row) : 0.0f;
    float x[K][V] = {}, routed = 0;
    for (int first = 0; first < gather.count; first += U) {
      if (!kWide) stage_queries<T, U>(gather, first, D, queries);
      Packed<T, V> G[U][K];
      float p[U], a[U], delta[U];
#pragma unroll
      for (int u = 0; u < U; ++u) {
        const bool wanted = live && first + u < gather.count;
        const Consumer consumer = wanted ? gather.consumers[first + u] : Consumer{0, 0};
        lane.load_row(gather.gradients + (consumer.site * N + n) * D, wanted, G[u]);
        a[u] = delta[u] = 0;
        if (!wanted || !lane.active) continue;
        a[u] = load_together(gather.weights + (consumer.pair * N + n) * H + lane.head,
                             lane.leads_head);
        delta[u] =
            load_together(gather.delta + (consumer.site * N + n) * H + lane.head, lane.leads_head);
      }
#pragma unroll
      for (int u = 0; u < U; ++u) {
        p[u] = 0;
#pragma unroll
        for (int j = 0; j < K; ++j) p[u] = dot(v[j], G[u][j], p[u]);
      }
      lane.head_sum(p);
#pragma unroll
      for (int u = 0; u < U; ++u) {
        if (!live || first + u >= gather.count || !lane.active) continue;
        const Consumer consumer = gather.consumers[first + u];
        const float e = a[u] * (p[u] - delta[u]);
        if (lane.leads_head) {
          store_one(gather.errors + (consumer.pair * N + n) * H + lane.head, e);
          routed += a[u] * p[u];
        }
        float w[K][V];
        lane.load_query(kWide ? gather.folded + int64_t(consumer.site) * D : queries + u * D, kWide,
                        w);
#pragma unroll
        for (int j = 0; j < K; ++j)
#pragma unroll
          for (int c = 0; c < V; ++c) x[j][c] += a[u] * G[u][j][c] + r * e * w[j][c];
      }
    }
    if (gather.partial.dsource != nullptr && live)
      add_partial(gather.partial, lane, x, routed, n, D);
    write_source_gradient(lane, v, x, routed, r, gather.carry, gather.dsource, gather.keep, D, n,
                          live);
  }
}

}  // namespace

int keep_gradient_rows(const RowLayout& row, int64_t tokens) {
  return int(token_blocks(row, tokens)) * row.teams;
}

template <class T>
void keep_gradient(const RowLayout& row, const KeepGradient<T>& keep, cudaStream_t stream) {
  with_site_layout(row, [&](auto V, auto K, auto wide) {
    launch("keep_gradient", {token_blocks(row, keep.tokens), unsigned(row.threads()), 0, stream},
           keep_gradient_kernel<T, V, K, wide>, keep, row);
  });
}

template <class T>
void fused_gather(const RowLayout& row, const Gather<T>& gather, cudaStream_t stream) {
  with_site_layout(row, [&](auto V, auto K, auto wide) {
    constexpr int U = kRowsInFlight<K, wide>;
    const std::size_t queries = wide ? 0 : sizeof(float) * U * std::size_t(row.channels);
    launch("fused_gather",
           {token_blocks(row, gather.tokens), unsigned(row.threads()), queries, stream},
           fused_gather_kernel<T, V, K, wide>, gather, row);
  });
}

#define INSTANTIATE(T)                                                                    \
  template void keep_gradient<T>(const RowLayout&, const KeepGradient<T>&, cudaStream_t); \
  template void fused_gather<T>(const RowLayout&, const Gather<T>&, cudaStream_t);
INSTANTIATE(float)
INSTANTIATE(__nv_bfloat16)
#undef INSTANTIATE

}  // namespace attnres::ATTNRES_BACKEND
