// How kernels touch device memory: V values at a time in the widest accesses that fit, as float in
// registers and as T (float or bfloat16) in memory.  The emulator counts the bytes.
#pragma once

#include "cuda/device/backend.h"

#ifdef ATTNRES_EMULATED
#include "cuda/emulator/launch.h"
#endif

namespace attnres::ATTNRES_BACKEND {

// What a kernel moves: rows and scalars of tokens, and parameters, which do not grow with tokens.
#ifdef ATTNRES_EMULATED
inline void count_read(std::size_t bytes) { cuda_emulator::count_read(bytes); }
inline void count_written(std::size_t bytes) { cuda_emulator::count_written(bytes); }
inline void count_parameters(std::size_t bytes) { cuda_emulator::count_parameters(bytes); }
// A GPU traps; C++ would copy a struct from anywhere.
inline void check_aligned(const void* p, int bytes) {
  if (reinterpret_cast<std::uintptr_t>(p) % std::uintptr_t(bytes) != 0)
    throw cuda_emulator::MisalignedAccess(p, bytes);
}
#else
__device__ inline void count_read(std::size_t) {}
__device__ inline void count_written(std::size_t) {}
__device__ inline void count_parameters(std::size_t) {}
__device__ inline void check_aligned(const void*, int) {}
#endif

template <int Bytes>
struct WordOf;
template <>
struct WordOf<16> {
  using type = uint4;
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<4> {
  using type = unsigned;
};
template <>
struct WordOf<2> {
  using type = unsigned short;
};

/// V values as they lie in memory.  Kept packed while a load is in flight: half the registers.
template <class T, int V>
struct Packed {
  static constexpr int kBytes = int(sizeof(T)) * V;
  static constexpr int kWordBytes = kBytes < 16 ? kBytes : 16;
  using Word = typename WordOf<kWordBytes>::type;

  alignas(kWordBytes < 4 ? 4 : kWordBytes) unsigned bits[kBytes < 4 ? 1 : kBytes / 4];

  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (sizeof(T) == 4) return __uint_as_float(bits[i]);
    // bfloat16 is the upper half of a float.
    return __uint_as_float(i % 2 == 0 ? bits[i / 2] << 16 : bits[i / 2] & 0xffff0000u);
  }
  __device__ __forceinline__ void set_zero() {
#pragma unroll
    for (unsigned& word : bits) word = 0;
  }
};

/// Values p[0..V) from any memory, p aligned to Packed::kWordBytes; not counted.
template <class T, int V>
__device__ __forceinline__ Packed<T, V> load_uncounted(const T* p) {
  using P = Packed<T, V>;
  P packed;
  check_aligned(p, P::kWordBytes);
#pragma unroll
  for (int i = 0; i < P::kBytes / P::kWordBytes; ++i)
    reinterpret_cast<typename P::Word*>(packed.bits)[i] =
        reinterpret_cast<const typename P::Word*>(p)[i];
  return packed;
}

/// Values p[0..V) of a token's row.
template <class T, int V>
__device__ __forceinline__ Packed<T, V> load(const T* p) {
  count_read(sizeof(T) * V);
  return load_uncounted<T, V>(p);
}

/// x as it will read back: rounded to T.
template <class T>
__device__ __forceinline__ float rounded(float x) {
  if constexpr (sizeof(T) == 4) return x;
  return __bfloat162float(__float2bfloat16(x));
}

/// p[0..V) = x, rounded to T.
template <class T, int V>
__device__ __forceinline__ void store(T* p, const float (&x)[V]) {
  using P = Packed<T, V>;
  P packed;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < V; ++i) packed.bits[i] = __float_as_uint(x[i]);
  } else {
    packed.set_zero();
#pragma unroll
    for (int i = 0; i < V; ++i)
      packed.bits[i / 2] |= unsigned(__bfloat16_as_ushort(__float2bfloat16(x[i]))) << 16 * (i % 2);
  }
  check_aligned(p, P::kWordBytes);
#pragma unroll
  for (int i = 0; i < P::kBytes / P::kWordBytes; ++i)
    reinterpret_cast<typename P::Word*>(p)[i] =
        reinterpret_cast<const typename P::Word*>(packed.bits)[i];
  count_written(P::kBytes);
}

/// One value that several lanes read together, in one access: `counts` is true for one of them.
__device__ __forceinline__ float load_together(const float* p, bool counts) {
  if (counts) count_read(sizeof(float));
  return *p;
}
__device__ __forceinline__ void store_one(float* p, float x) {
  *p = x;
  count_written(sizeof(float));
}

/// A parameter, or a sum over tokens that becomes a parameter's gradient.
template <class T>
__device__ __forceinline__ T load_parameter(const T* p) {
  count_parameters(sizeof(T));
  return *p;
}
__device__ __forceinline__ void store_parameter(float* p, float x) {
  *p = x;
  count_parameters(sizeof(float));
}

}  // namespace attnres::ATTNRES_BACKEND
