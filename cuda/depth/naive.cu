// Depth attention as the equations are written, one thread block per token: the baseline that the
// other kernels are measured against, and the one to read first.  Any D, any H.
#include <stdexcept>

#include "cuda/depth/kernels.h"
#include "cuda/device/vector_io.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

constexpr int kThreads = 128;

template <class T>
__device__ float value(const T* p) {
  count_read(sizeof(T));
  return float(*p);
}
template <class T>
__device__ void put(T* p, float x) {
  count_written(sizeof(T));
  *p = T(x);
}

// The sum of x over the block, in all threads.
__device__ float block_sum(float x, float* scratch) {
  scratch[threadIdx.x] = x;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (int(threadIdx.x) < half) scratch[threadIdx.x] += scratch[threadIdx.x + half];
    __syncthreads();
  }
  const float sum = scratch[0];
  __syncthreads();
  return sum;
}

template <class T>
__global__ void naive_forward_kernel(SiteForward<T> site, int D, int H) {
  __shared__ float scratch[kThreads];
  ATTNRES_DYNAMIC_SHARED(float, s);  // logits, then weights [count, H]
  const int64_t N = site.tokens, n = blockIdx.x;
  const int C = D / H, S = site.count;

  // r_k = (mean_d v_k^2 + eps)^(-1/2);   s_k[h] = r_k sum_{c in h} w[c] v_k[c]
  for (int k = 0; k < S; ++k) {
    const T* v = site.bank + (site.sources[k] * N + n) * D;
    float squares = 0;
    for (int d = int(threadIdx.x); d < D; d += kThreads) {
      const float x = value(v + d);
      squares += x * x;
    }
    const float r = rsqrtf(block_sum(squares, scratch) / float(D) + site.eps);
    if (threadIdx.x == 0) put(site.rstd + site.sources[k] * N + n, r);
    for (int h = 0; h < H; ++h) {
      float dot = 0;
      for (int c = int(threadIdx.x); c < C; c += kThreads)
        dot += load_parameter(site.folded + h * C + c) * value(v + h * C + c);
      dot = block_sum(dot, scratch);
      if (threadIdx.x == 0) s[k * H + h] = r * dot;
    }
  }
  __syncthreads();
  // a_k[h] = exp(s_k[h]) / sum_j exp(s_j[h])
  for (int h = int(threadIdx.x); h < H; h += kThreads) {
    float maximum = s[h], sum = 0;
    for (int k = 1; k < S; ++k) maximum = fmaxf(maximum, s[k * H + h]);
    for (int k = 0; k < S; ++k) sum += expf(s[k * H + h] - maximum);
    for (int k = 0; k < S; ++k) {
      s[k * H + h] = expf(s[k * H + h] - maximum) / sum;
      put(site.weights + (k * N + n) * H + h, s[k * H + h]);
    }
  }
  __syncthreads();
  // o[c] = sum_k a_k[h(c)] v_k[c]
  for (int c = int(threadIdx.x); c < D; c += kThreads) {
    float o = 0;
    for (int k = 0; k < S; ++k)
      o += s[k * H + c / C] * value(site.bank + (site.sources[k] * N + n) * D + c);
    put(site.output + n * D + c, o);
  }
}

template <class T>
__global__ void naive_delta_kernel(const T* G, const T* o, float* delta, int D, int H) {
  __shared__ float scratch[kThreads];
  const int64_t n = blockIdx.x;
  const int C = D / H;
  for (int h = 0; h < H; ++h) {
    float sum = 0;
    for (int c = h * C + int(threadIdx.x); c < (h + 1) * C; c += kThreads)
      sum += value(G + n * D + c) * value(o + n * D + c);
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) put(delta + n * H + h, sum);
  }
}

template <class T>
__global__ void naive_scatter_kernel(Scatter<T> site) {
  __shared__ float scratch[kThreads];
  const int64_t N = site.tokens, n = blockIdx.x;
  const int D = site.channels, H = site.heads, C = D / H;
  const T* G = site.gradient + n * D;

  for (int k = 0; k < site.count; ++k) {
    const int64_t source = site.sources[k];
    const T* v = site.bank + (source * N + n) * D;
    float* dv = site.dsources + (source * N + n) * D;
    const float r = value(site.rstd + source * N + n);
    // p[h] = sum_{c in h} G v;   e = a (p - delta);   dv += a ∘ G + r e ∘ w - (r^2/D) (sum e s) v
    float sum_e_s = 0;
    for (int h = 0; h < H; ++h) {
      float p = 0, dot = 0;
      for (int c = h * C + int(threadIdx.x); c < (h + 1) * C; c += kThreads) {
        p += value(G + c) * value(v + c);
        dot += load_parameter(site.folded + c) * value(v + c);
      }
      p = block_sum(p, scratch);
      const float s = r * block_sum(dot, scratch);
      const float a = value(site.weights + (k * N + n) * H + h);
      const float e = a * (p - value(site.delta + n * H + h));
      if (threadIdx.x == 0) put(site.errors + (k * N + n) * H + h, e);
      sum_e_s += e * s;
      for (int c = h * C + int(threadIdx.x); c < (h + 1) * C; c += kThreads)
        put(dv + c, value(dv + c) + a * value(G + c) + r * e * load_parameter(site.folded + c));
    }
    __syncthreads();  // below, a channel may belong to another thread than above
    for (int c = int(threadIdx.x); c < D; c += kThreads)
      put(dv + c, value(dv + c) - r * r / float(D) * sum_e_s * value(v + c));
  }
}

template <class T>
__global__ void naive_query_gradient_kernel(Scatter<T> site, float* dfolded) {
  const int64_t N = site.tokens;
  const int D = site.channels, H = site.heads, c = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (c >= D) return;
  float sum = 0;
  for (int64_t n = 0; n < N; ++n)
    for (int k = 0; k < site.count; ++k) {
      const int64_t source = site.sources[k];
      sum += value(site.errors + (k * N + n) * H + c / (D / H)) *
             value(site.rstd + source * N + n) * value(site.bank + (source * N + n) * D + c);
    }
  store_parameter(dfolded + c, sum);
}

}  // namespace

template <class T>
void naive_forward(const SiteForward<T>& site, int channels, int heads, cudaStream_t stream) {
  if (site.norm.gain != nullptr || site.first > 0)
    throw std::invalid_argument("naive_forward: takes no pre-norm and no partial mix");
  launch("naive_forward",
         {unsigned(site.tokens), kThreads, sizeof(float) * std::size_t(site.count) * heads, stream},
         naive_forward_kernel<T>, site, channels, heads);
}

template <class T>
void naive_delta(const T* gradient, const T* output, float* delta, int64_t tokens, int channels,
                 int heads, cudaStream_t stream) {
  launch("naive_delta", {unsigned(tokens), kThreads, 0, stream}, naive_delta_kernel<T>, gradient,
         output, delta, channels, heads);
}

template <class T>
void naive_scatter(const Scatter<T>& scatter, cudaStream_t stream) {
  launch("naive_scatter", {unsigned(scatter.tokens), kThreads, 0, stream}, naive_scatter_kernel<T>,
         scatter);
}

template <class T>
void naive_query_gradient(const Scatter<T>& scatter, float* dfolded, cudaStream_t stream) {
  launch("naive_query_gradient",
         {unsigned(scatter.channels + kThreads - 1) / kThreads, kThreads, 0, stream},
         naive_query_gradient_kernel<T>, scatter, dfolded);
}

#define INSTANTIATE(T)                                                                       \
  template void naive_forward<T>(const SiteForward<T>&, int, int, cudaStream_t);             \
  template void naive_delta<T>(const T*, const T*, float*, int64_t, int, int, cudaStream_t); \
  template void naive_scatter<T>(const Scatter<T>&, cudaStream_t);                           \
  template void naive_query_gradient<T>(const Scatter<T>&, float*, cudaStream_t);
INSTANTIATE(float)
INSTANTIATE(__nv_bfloat16)
#undef INSTANTIATE

}  // namespace attnres::ATTNRES_BACKEND
