// dw of all sites that read one source: a thin product e^T (r v) over tokens, in two stages with a
// fixed order.  Bytes per (source, channel) of a token in bfloat16: 2 for v, and 4 H / D per
// consumer for e; what it adds to per chunk of tokens does not grow with them.
#include <algorithm>
#include <type_traits>

#include "cuda/depth/kernels.h"
#include "cuda/depth/query_tiling.h"
#include "cuda/device/vector_io.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

// Thread (q, c) sums channel c for the consumers q, q + groups, ... of this pass.
template <class T, int V, int kSums>
__global__ void __launch_bounds__(kQueryThreads, 1)
    query_gradient_kernel(QueryGradient<T> g, QueryTiling tile, int64_t tokens_per_chunk) {
  ATTNRES_DYNAMIC_SHARED(float, shared);
  const int D = g.channels, H = g.heads, C = D / H;
  const int chunk = int(blockIdx.x) / tile.tiles;
  const int first_channel = int(blockIdx.x) % tile.tiles * tile.channels;
  const int channels = min(tile.channels, D - first_channel);
  const int first_head = first_channel / C;
  const int heads = (first_channel + channels - 1) / C - first_head + 1;
  float* const x = shared;                               // r v  [batch, channels]
  float* const e = shared + tile.batch * tile.channels;  // [batch, consumers, heads]
  const int groups = kQueryThreads / tile.channels, group = int(threadIdx.x) / tile.channels;
  const int c = int(threadIdx.x) % tile.channels;
  const bool active = group < groups && c < channels;
  const int head = active ? (first_channel + c) / C - first_head : 0;
  const int64_t begin = chunk * tokens_per_chunk, end = min(g.tokens, begin + tokens_per_chunk);

  for (int first = 0; first < g.count; first += tile.consumers) {
    const int consumers = min(tile.consumers, g.count - first);
    float sum[kSums];
#pragma unroll
    for (float& value : sum) value = 0;
    for (int64_t base = begin; base < end; base += tile.batch) {
      const int batch = int(min(int64_t(tile.batch), end - base));
      __syncthreads();
      for (int i = int(threadIdx.x); i < batch * (channels / V); i += kQueryThreads) {
        const int64_t n = base + i / (channels / V);
        const int column = i % (channels / V) * V;
        const auto v = load<T, V>(g.source + n * D + first_channel + column);
        const float r = load_together(g.rstd + n, column == 0);
#pragma unroll
        for (int k = 0; k < V; ++k) x[i / (channels / V) * tile.channels + column + k] = r * v[k];
      }
      for (int i = int(threadIdx.x); i < batch * consumers * heads; i += kQueryThreads) {
        const int h = i % heads, n = i / heads % batch, k = i / (heads * batch);
        const int64_t pair = g.consumers[first + k].pair;
        e[(n * consumers + k) * heads + h] =
            load_together(g.errors + (pair * g.tokens + base + n) * H + first_head + h, true);
      }
      __syncthreads();
      if (!active) continue;
      for (int n = 0; n < batch; ++n) {
        const float value = x[n * tile.channels + c];
#pragma unroll
        for (int k = 0; k < kSums; ++k)
          if (group + k * groups < consumers)
            sum[k] += e[(n * consumers + group + k * groups) * heads + head] * value;
      }
    }
    if (!active) continue;
#pragma unroll
    for (int k = 0; k < kSums; ++k) {
      if (group + k * groups >= consumers) continue;
      const int site = g.consumers[first + group + k * groups].site;
      float* const out = g.partials + (int64_t(chunk) * g.sites + site) * D + first_channel + c;
      store_parameter(out, load_parameter(out) + sum[k]);
    }
  }
}

int64_t tokens_in_chunk(int64_t tokens, int channels, int heads) {
  const int64_t chunks =
      std::max(1, int(multiprocessors()) * 2 / QueryTiling(channels, heads, 1).tiles);
  return std::max<int64_t>(64, (tokens + chunks - 1) / chunks);
}

}  // namespace

int query_gradient_chunks(int64_t tokens, int channels, int heads) {
  const int64_t per_chunk = tokens_in_chunk(tokens, channels, heads);
  return int((tokens + per_chunk - 1) / per_chunk);
}

template <class T>
void query_gradient(const QueryGradient<T>& g, cudaStream_t stream) {
  if (g.count == 0) return;
  const QueryTiling tile(g.channels, g.heads, g.count);
  const int64_t per_chunk = tokens_in_chunk(g.tokens, g.channels, g.heads);
  const int chunks = query_gradient_chunks(g.tokens, g.channels, g.heads);
  const std::size_t shared =
      sizeof(float) * tile.batch *
      (std::size_t(tile.channels) + std::size_t(tile.consumers) * tile.heads);
  const Grid grid{unsigned(chunks * tile.tiles), kQueryThreads, shared, stream};
  const int C = g.channels / g.heads;
  // A tile begins at a multiple of C or of kQueryTile: vectors must divide both.
  const auto run = [&](auto V) {
    const int groups = kQueryThreads / tile.channels;
    const int sums = (tile.consumers + groups - 1) / groups;  // per thread
    if (sums <= 8)
      launch("query_gradient", grid, query_gradient_kernel<T, V, 8>, g, tile, per_chunk);
    else
      launch("query_gradient", grid, query_gradient_kernel<T, V, kQueryConsumersPerThread>, g, tile,
             per_chunk);
  };
  if (C % 8 == 0) return run(std::integral_constant<int, 8>());
  if (C % 4 == 0) return run(std::integral_constant<int, 4>());
  run(std::integral_constant<int, 1>());
}

template void query_gradient<float>(const QueryGradient<float>&, cudaStream_t);
template void query_gradient<__nv_bfloat16>(const QueryGradient<__nv_bfloat16>&, cudaStream_t);

}  // namespace attnres::ATTNRES_BACKEND
