// What surrounds routing: folded queries, ordered sums of partials, the residual stream of the
// residual and delta forms, and the gate.
#include <algorithm>

#include "cuda/depth/kernels.h"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vector_io.cuh"

namespace attnres::ATTNRES_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 8;  // D is divisible by 8, so every array of rows is too

unsigned blocks_for(int64_t items) {
  return unsigned(std::clamp<int64_t>((items + kThreads - 1) / kThreads, 1, 65536));
}

__device__ int64_t first_item() { return int64_t(blockIdx.x) * kThreads + threadIdx.x; }
__device__ int64_t stride() { return int64_t(gridDim.x) * kThreads; }

__global__ void fold_query_kernel(const float* query, const float* key_gain, float* folded,
                                  int channels) {
  for (int64_t c = first_item(); c < channels; c += stride())
    store_parameter(folded + c, load_parameter(query + c) * load_parameter(key_gain + c));
}

// Eight threads per column add every eighth row, then their sums are added in order.
__device__ float sum_rows(const float* partials, int rows, int64_t row_stride, int column,
                          int width, float (&sums)[8][32]) {
  const int part = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  float sum = 0;
  if (column < width)
    for (int row = part; row < rows; row += 8)
      sum += load_parameter(partials + row * row_stride + column);
  sums[part][lane] = sum;
  __syncthreads();
  sum = sums[0][lane];
  for (int other = 1; other < 8; ++other) sum += sums[other][lane];
  return sum;
}

__global__ void unfold_query_gradient_kernel(const float* partials, int rows, int64_t row_stride,
                                             const float* query, const float* key_gain,
                                             float* dquery, float* dkey_gain, int channels) {
  __shared__ float sums[8][32];
  const int c = int(blockIdx.x) * 32 + int(threadIdx.x) % 32;
  const float dw = sum_rows(partials, rows, row_stride, c, channels, sums);
  if (threadIdx.x >= 32 || c >= channels) return;
  store_parameter(dquery + c, load_parameter(dquery + c) + dw * load_parameter(key_gain + c));
  store_parameter(dkey_gain + c, load_parameter(dkey_gain + c) + dw * load_parameter(query + c));
}

__global__ void add_rows_kernel(const float* partials, int rows, int64_t row_stride, float* out,
                                int width) {
  __shared__ float sums[8][32];
  const int c = int(blockIdx.x) * 32 + int(threadIdx.x) % 32;
  const float sum = sum_rows(partials, rows, row_stride, c, width, sums);
  if (threadIdx.x < 32 && c < width) store_parameter(out + c, load_parameter(out + c) + sum);
}

template <class T>
__global__ void add_kernel(const T* a, const T* b, T* to, int64_t vectors) {
  for (int64_t i = first_item(); i < vectors; i += stride()) {
    const auto x = load<T, kVector>(a + i * kVector);
    const auto y = load<T, kVector>(b + i * kVector);
    float sum[kVector];
    for (int c = 0; c < kVector; ++c) sum[c] = x[c] + y[c];
    store<T, kVector>(to + i * kVector, sum);
  }
}

template <class T>
__global__ void add_to_stream_kernel(float* stream, const T* x, bool fresh, int64_t vectors) {
  for (int64_t i = first_item(); i < vectors; i += stride()) {
    const auto in = load<T, kVector>(x + i * kVector);
    float sum[kVector] = {};
    if (!fresh) {
      const auto old = load<float, kVector>(stream + i * kVector);
      for (int c = 0; c < kVector; ++c) sum[c] = old[c];
    }
    for (int c = 0; c < kVector; ++c) sum[c] += in[c];
    store<float, kVector>(stream + i * kVector, sum);
  }
}

template <class T>
__global__ void read_stream_kernel(const float* stream, const T* o, const float* gate, T* to,
                                   int64_t vectors) {
  const float alpha = gate == nullptr ? 1.0f : load_parameter(gate);
  for (int64_t i = first_item(); i < vectors; i += stride()) {
    const auto x = load<float, kVector>(stream + i * kVector);
    float sum[kVector];
    for (int c = 0; c < kVector; ++c) sum[c] = x[c];
    if (o != nullptr && alpha != 0) {  // gate 0 is the residual model, bit for bit
      const auto mix = load<T, kVector>(o + i * kVector);
      for (int c = 0; c < kVector; ++c) sum[c] += alpha * mix[c];
    }
    store<T, kVector>(to + i * kVector, sum);
  }
}

template <class T>
__global__ void scale_kernel(const T* x, const float* gate, T* to, int64_t vectors) {
  const float alpha = load_parameter(gate);
  for (int64_t i = first_item(); i < vectors; i += stride()) {
    const auto in = load<T, kVector>(x + i * kVector);
    float out[kVector];
    for (int c = 0; c < kVector; ++c) out[c] = alpha * in[c];
    store<T, kVector>(to + i * kVector, out);
  }
}

template <class T>
__global__ void row_dots_kernel(const T* x, const T* y, float* sums, int64_t tokens, int channels) {
  const int lane = int(threadIdx.x) % 32;
  for (int64_t n = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32; n < tokens;
       n += int64_t(gridDim.x) * (kThreads / 32)) {
    float sum = 0;
    for (int c = lane * kVector; c < channels; c += 32 * kVector) {
      const auto a = load<T, kVector>(x + n * channels + c);
      const auto b = load<T, kVector>(y + n * channels + c);
      for (int k = 0; k < kVector; ++k) sum += a[k] * b[k];
    }
    sum = segment_sum(sum, 32);
    if (lane == 0) store_one(sums + n, sum);
  }
}

template <class T>
__global__ void convert_kernel(const float* from, T* to, int64_t vectors) {
  for (int64_t i = first_item(); i < vectors; i += stride()) {
    const auto in = load<float, kVector>(from + i * kVector);
    float out[kVector];
    for (int c = 0; c < kVector; ++c) out[c] = in[c];
    store<T, kVector>(to + i * kVector, out);
  }
}

}  // namespace

void fold_query(const float* query, const float* key_gain, float* folded, int channels,
                cudaStream_t stream) {
  launch("fold_query", {blocks_for(channels), kThreads, 0, stream}, fold_query_kernel, query,
         key_gain, folded, channels);
}

void unfold_query_gradient(const float* partials, int rows, int64_t row_stride, const float* query,
                           const float* key_gain, float* dquery, float* dkey_gain, int channels,
                           cudaStream_t stream) {
  launch("unfold_query_gradient", {unsigned(channels + 31) / 32, kThreads, 0, stream},
         unfold_query_gradient_kernel, partials, rows, row_stride, query, key_gain, dquery,
         dkey_gain, channels);
}

void add_rows(const float* partials, int rows, int64_t row_stride, float* out, int width,
              cudaStream_t stream) {
  launch("add_rows", {unsigned(width + 31) / 32, kThreads, 0, stream}, add_rows_kernel, partials,
         rows, row_stride, out, width);
}

template <class T>
void add(const T* a, const T* b, T* to, int64_t count, cudaStream_t stream) {
  launch("add", {blocks_for(count / kVector), kThreads, 0, stream}, add_kernel<T>, a, b, to,
         count / kVector);
}

template <class T>
void add_to_stream(float* stream, const T* x, bool fresh, int64_t count, cudaStream_t stream_id) {
  launch("add_to_stream", {blocks_for(count / kVector), kThreads, 0, stream_id},
         add_to_stream_kernel<T>, stream, x, fresh, count / kVector);
}

template <class T>
void read_stream(const float* stream, const T* o, const float* gate, T* to, int64_t count,
                 cudaStream_t stream_id) {
  launch("read_stream", {blocks_for(count / kVector), kThreads, 0, stream_id},
         read_stream_kernel<T>, stream, o, gate, to, count / kVector);
}

template <class T>
void scale(const T* x, const float* gate, T* to, int64_t count, cudaStream_t stream) {
  launch("scale", {blocks_for(count / kVector), kThreads, 0, stream}, scale_kernel<T>, x, gate, to,
         count / kVector);
}

template <class T>
void row_dots(const T* x, const T* y, float* sums, int64_t tokens, int channels,
              cudaStream_t stream) {
  launch("row_dots", {blocks_for(tokens * 32), kThreads, 0, stream}, row_dots_kernel<T>, x, y, sums,
         tokens, channels);
}

template <class T>
void convert(const float* from, T* to, int64_t count, cudaStream_t stream) {
  launch("convert", {blocks_for(count / kVector), kThreads, 0, stream}, convert_kernel<T>, from, to,
         count / kVector);
}

#define INSTANTIATE(T)                                                                           \
  template void add<T>(const T*, const T*, T*, int64_t, cudaStream_t);                           \
  template void add_to_stream<T>(float*, const T*, bool, int64_t, cudaStream_t);                 \
  template void read_stream<T>(const float*, const T*, const float*, T*, int64_t, cudaStream_t); \
  template void scale<T>(const T*, const float*, T*, int64_t, cudaStream_t);                     \
  template void row_dots<T>(const T*, const T*, float*, int64_t, int, cudaStream_t);             \
  template void convert<T>(const float*, T*, int64_t, cudaStream_t);
INSTANTIATE(float)
INSTANTIATE(__nv_bfloat16)
#undef INSTANTIATE

}  // namespace attnres::ATTNRES_BACKEND
