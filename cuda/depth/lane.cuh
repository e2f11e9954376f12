// One thread's share of a row, and the sums that a team of threads makes together.
#pragma once

#include "cuda/depth/row_layout.h"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vector_io.cuh"

namespace attnres::ATTNRES_BACKEND {

/// Room for the sums that cross warps: two sets in turn, so that one barrier per sum is enough.
struct Exchange {
  float sums[2][kMaxGroup][32];
};

/// V channels per vector, K vectors per lane (RowLayout).  kWide: the team is the whole block and
/// sums may cross warps through `exchange`; then every thread of the block must call them.
template <int V, int K, bool kWide>
class Lane {
 public:
  __device__ Lane(const RowLayout& row, Exchange& exchange) : row_(row), exchange_(exchange) {
    const int thread = kWide ? int(threadIdx.x) : int(threadIdx.x) % 32;
    team = kWide ? 0 : int(threadIdx.x) / 32;
    head = thread / row.lanes_per_head;
    rank = thread % row.lanes_per_head;
    active = head < row.heads;
    leads_head = active && rank == 0;
    leads_row = thread == 0;
  }

  int team;         ///< which of the block's tokens
  int head, rank;   ///< the head that this lane works for, and its number among the head's lanes
  bool active;      ///< false for lanes that no head needs
  bool leads_head;  ///< one lane per head: reads and writes what the head has once
  bool leads_row;   ///< one lane per token

  /// Whether this lane has a vector j, and its first channel.
  __device__ __forceinline__ bool has(int j) const {
    return active && (rank + j * row_.lanes_per_head) * V < row_.head_channels;
  }
  __device__ __forceinline__ int channel(int j) const {
    return head * row_.head_channels + (rank + j * row_.lanes_per_head) * V;
  }

  /// The lane's vectors of a row; zeros where it has none or the row is not `wanted`.
  template <class T>
  __device__ __forceinline__ void load_row(const T* row, bool wanted, Packed<T, V> (&x)[K]) const {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      x[j].set_zero();
      if (wanted && has(j)) x[j] = load<T, V>(row + channel(j));
    }
  }
  template <class T>
  __device__ __forceinline__ void store_row(T* row, const float (&x)[K][V]) const {
#pragma unroll
    for (int j = 0; j < K; ++j)
      if (has(j)) store<T, V>(row + channel(j), x[j]);
  }
  /// The lane's vectors of a folded query, in device or (uncounted) in shared memory.
  __device__ __forceinline__ void load_query(const float* row, bool counts,
                                             float (&w)[K][V]) const {
#pragma unroll
    for (int j = 0; j < K; ++j) {
      Packed<float, V> packed;
      packed.set_zero();
      if (has(j)) packed = load_uncounted<float, V>(row + channel(j));
      if (has(j) && counts) count_parameters(sizeof(float) * V);
#pragma unroll
      for (int c = 0; c < V; ++c) w[j][c] = packed[c];
    }
  }
  /// The lane's share of a parameter row that need not be aligned.
  __device__ __forceinline__ void load_parameters(const float* row, float (&x)[K][V]) const {
#pragma unroll
    for (int j = 0; j < K; ++j)
#pragma unroll
      for (int c = 0; c < V; ++c) x[j][c] = has(j) ? load_parameter(row + channel(j) + c) : 0.0f;
  }

  /// All lanes of the team have arrived, and see what the others wrote to shared memory.
  __device__ __forceinline__ void sync() const {
    if (kWide)
      __syncthreads();
    else
      __syncwarp();
  }

  /// Each x[u] becomes its sum over the lanes of the head.
  template <int U>
  __device__ __forceinline__ void head_sum(float (&x)[U]) {
    const int lanes = row_.lanes_per_head;
#pragma unroll
    for (int u = 0; u < U; ++u) x[u] = segment_sum(x[u], lanes < 32 ? lanes : 32);
    if (!kWide || lanes <= 32) return;
    const int warps = lanes / 32;
    across_warps(x, active ? head * warps : 0, warps);
  }
  /// The sum of x over the whole row.
  __device__ __forceinline__ float row_sum(float x) {
    float sums[1] = {segment_sum(x, 32)};
    if (kWide) across_warps(sums, 0, row_.warps);
    return sums[0];
  }

 private:
  // Adds the sums of `count` warps, `first` and on, in order.
  template <int U>
  __device__ __forceinline__ void across_warps(float (&x)[U], int first, int count) {
    float(&sums)[kMaxGroup][32] = exchange_.sums[turn_];
    turn_ ^= 1;
    if (threadIdx.x % 32 == 0)
#pragma unroll
      for (int u = 0; u < U; ++u) sums[u][threadIdx.x / 32] = x[u];
    __syncthreads();
#pragma unroll
    for (int u = 0; u < U; ++u) {
      x[u] = sums[u][first];
      for (int warp = 1; warp < count; ++warp) x[u] += sums[u][first + warp];
    }
  }

  const RowLayout& row_;
  Exchange& exchange_;
  int turn_ = 0;
};

template <class T, int V>
__device__ __forceinline__ float dot(const Packed<T, V>& x, const float (&y)[V], float sum) {
#pragma unroll
  for (int c = 0; c < V; ++c) sum += x[c] * y[c];
  return sum;
}
template <class T, int V>
__device__ __forceinline__ float dot(const Packed<T, V>& x, const Packed<T, V>& y, float sum) {
#pragma unroll
  for (int c = 0; c < V; ++c) sum += x[c] * y[c];
  return sum;
}

/// (mean(v^2) + eps)^(-1/2) over the whole row, D channels.  Every lane of the team calls it.
template <class T, int V, int K, bool kWide>
__device__ __forceinline__ float row_rstd(Lane<V, K, kWide>& lane, const Packed<T, V> (&v)[K],
                                          float eps, int D) {
  float squares = 0;
#pragma unroll
  for (int j = 0; j < K; ++j) squares = dot(v[j], v[j], squares);
  return rsqrtf(lane.row_sum(squares) / float(D) + eps);
}

}  // namespace attnres::ATTNRES_BACKEND
