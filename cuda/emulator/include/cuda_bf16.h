// A look-alike of CUDA's bfloat16: the upper half of a float, rounded to nearest, ties to even.
#pragma once

#include "cuda_runtime.h"

namespace cuda_emulator {

struct __nv_bfloat16 {
  std::uint16_t bits;

  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = word + 0x7fffu + ((word >> 16) & 1u);
    // Rounding must not carry a NaN into infinity.
    bits = std::uint16_t(value != value ? 0x7fffu : rounded >> 16);
  }
  operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
};

struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return __nv_bfloat16(value); }
inline float __bfloat162float(__nv_bfloat16 value) { return float(value); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline std::uint16_t __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(std::uint16_t bits) {
  __nv_bfloat16 value;
  value.bits = bits;
  return value;
}

}  // namespace cuda_emulator
