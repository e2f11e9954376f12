// A look-alike of CUDA's header: with this folder first on the include path, .cu files are ordinary
// C++20 that runs on the CPU.  Every thread of a block is a fiber (emulator/block.h), so barriers,
// shuffles and shared memory behave as on a GPU, and misuse is reported by thread, file and line.
#pragma once

#ifdef __CUDACC__
#error "the emulator's cuda_runtime.h must not be on nvcc's include path"
#endif

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SANITIZE_ADDRESS__)
#define ATTNRES_EMULATOR_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ATTNRES_EMULATOR_ASAN 1
#endif
#endif

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// One copy per OS thread, which runs one block at a time.  AddressSanitizer does not guard thread
// locals, so under it there is one copy, and one block at a time in the process.
#ifdef ATTNRES_EMULATOR_ASAN
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

// A namespace of its own keeps these symbols apart from the CUDA runtime's in a program that holds
// both.
namespace cuda_emulator {

// ---- Vector types ----
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- Where a thread is: real variables, for a debugger to print and to break on ----
extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

// ---- Barriers and warp operations ----
/// The place in the source from which a thread called; every wait knows its own.
struct CallSite {
  const char* file;
  int line;
  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

enum class Collective { syncwarp, shuffle, ballot, any, all, segment_sum, segment_max };

/// All lanes of `mask` meet; each brings a value and gets what `operation` makes of all of them:
/// shuffle, the value of lane `argument`; ballot, any, all, the votes; segment_sum and segment_max,
/// the butterfly over aligned groups of `argument` lanes, in the order of __shfl_xor_sync.
std::uint64_t meet(Collective operation, unsigned mask, std::uint64_t value, int argument,
                   CallSite site);
void block_barrier(CallSite site);
int lane_of_current_thread();

inline void __syncthreads(CallSite site = CallSite::here()) { block_barrier(site); }
inline void __syncwarp(unsigned mask = 0xffffffffu, CallSite site = CallSite::here()) {
  meet(Collective::syncwarp, mask, 0, 0, site);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace detail {
template <class T>
std::uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}
template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T shuffle(unsigned mask, T value, int source, CallSite site) {
  return from_bits<T>(meet(Collective::shuffle, mask, to_bits(value), source, site));
}
}  // namespace detail

// A source past its segment of `width` lanes (for _up: before it) yields the thread's own value, as
// the PTX manual defines; a source outside the mask is an error.
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              CallSite site = CallSite::here()) {
  const int lane = lane_of_current_thread(), first = lane & ~(width - 1);
  return detail::shuffle(mask, value, first + (source & (width - 1)), site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  CallSite site = CallSite::here()) {
  const int lane = lane_of_current_thread(), source = lane ^ lanes;
  return detail::shuffle(mask, value, source <= (lane | (width - 1)) ? source : lane, site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   CallSite site = CallSite::here()) {
  const int lane = lane_of_current_thread();
  const bool inside = (lane & (width - 1)) + int(delta) < width;
  return detail::shuffle(mask, value, inside ? lane + int(delta) : lane, site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 CallSite site = CallSite::here()) {
  const int lane = lane_of_current_thread();
  const bool inside = (lane & (width - 1)) >= int(delta);
  return detail::shuffle(mask, value, inside ? lane - int(delta) : lane, site);
}
inline unsigned __ballot_sync(unsigned mask, int vote, CallSite site = CallSite::here()) {
  return unsigned(meet(Collective::ballot, mask, vote != 0, 0, site));
}
inline int __any_sync(unsigned mask, int vote, CallSite site = CallSite::here()) {
  return int(meet(Collective::any, mask, vote != 0, 0, site));
}
inline int __all_sync(unsigned mask, int vote, CallSite site = CallSite::here()) {
  return int(meet(Collective::all, mask, vote != 0, 0, site));
}

// ---- Arithmetic ----
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(unsigned(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
template <class T>
T __ldg(const T* address) {
  return *address;
}
using std::max;
using std::min;

// ---- Atomics: blocks run on several OS threads ----
template <class T, class Combine>
T atomic_combine(T* address, Combine combine) {
  T old;
  __atomic_load(address, &old, __ATOMIC_RELAXED);
  T wanted = combine(old);
  while (
      !__atomic_compare_exchange(address, &old, &wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    wanted = combine(old);
  return old;
}
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return atomic_combine(address, [=](T old) { return T(old + value); });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return atomic_combine(address, [=](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return atomic_combine(address, [=](T old) { return std::min(old, value); });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return atomic_combine(address, [=](T) { return value; });
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return atomic_combine(address, [=](T old) { return old == expected ? value : old; });
}

// ---- The host's side ----
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
// Work happens when it is submitted: streams are labels, events are points in time.
struct StreamLabel {};
using cudaStream_t = StreamLabel*;
struct EventTime {
  std::chrono::steady_clock::time_point time;
};
using cudaEvent_t = EventTime*;

const char* cudaGetErrorString(cudaError_t error);
/// Filled with 0xFF, which is NaN in every format: what a kernel fails to write is seen.
cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int byte, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream = nullptr);
cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetLastError();
cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);

}  // namespace cuda_emulator

using namespace cuda_emulator;
