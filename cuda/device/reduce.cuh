// Sums over lanes in a fixed order.  The emulator performs the same additions in one rendezvous
// instead of five; fuse_reductions(false) makes it shuffle as a GPU does.
#pragma once

#include "cuda/device/backend.h"

namespace attnres::ATTNRES_BACKEND {

#ifdef ATTNRES_EMULATED
inline bool reductions_are_fused = true;
inline void fuse_reductions(bool fused) { reductions_are_fused = fused; }
#endif

/// The sum of x over each aligned group of `width` lanes (a power of two up to 32), in all of its
/// lanes.  Every lane of the warp must call it.
__device__ __forceinline__ float segment_sum(float x, int width) {
#ifdef ATTNRES_EMULATED
  if (reductions_are_fused)
    return cuda_emulator::detail::from_bits<float>(
        cuda_emulator::meet(cuda_emulator::Collective::segment_sum, 0xffffffffu,
                            cuda_emulator::detail::to_bits(x), width, CallSite::here()));
#endif
  for (int step = width / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

}  // namespace attnres::ATTNRES_BACKEND
