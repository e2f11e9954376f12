// What depth attention is made for, and all that it keeps on the device, sized before anything is
// allocated.
#pragma once

#include "cuda/depth/generation.h"
#include "cuda/depth/kernels.h"
#include "cuda/device/memory.h"
#include "reference/depth/plan.h"

namespace attnres::ATTNRES_BACKEND {

/// What a mixer is made for.
struct DepthShape {
  DepthMixing mixing;
  int sublayers = 0;   ///< L
  int64_t tokens = 0;  ///< N
  int channels = 0;    ///< D, divisible by 8
  float eps = 1e-6f;
  Generation generation = Generation::fused;
  int group = 0;  ///< sites, and sources, per group; 0 lets the byte model choose

  /// Throws std::invalid_argument with one sentence if the numbers do not fit together.
  void validate() const;
  bool attends() const { return mixing.kind != DepthMixing::Kind::residual; }
};

/// The group that a shape asks for, or that moves the fewest bytes of those that fit a block.
/// Throws std::invalid_argument if the one asked for does not fit.
int choose_group(const DepthPlan& plan, const DepthShape& shape, int row_bytes);

/// Kept between the forward and the backward pass.  Rows are T, statistics and weights float.
template <class T>
struct DepthBank {
  DepthBank(const DepthPlan& plan, const DepthShape& shape, int group);

  /// Bytes that a bank of this shape takes.
  static std::size_t bytes(const DepthPlan& plan, const DepthShape& shape, int group);
  std::size_t bytes() const;

  DeviceArray<T> sources;         ///< v [L+1, N, D]
  DeviceArray<T> gradients;       ///< G [L+2, N, D]; row 0 unused
  DeviceArray<float> rstd;        ///< r [L+1, N]
  DeviceArray<float> delta;       ///< [L+2, N, H]
  DeviceArray<float> weights;     ///< a [pairs, N, H]
  DeviceArray<float> errors;      ///< e [pairs, N, H]
  DeviceArray<float> folded;      ///< w [L+2, D]
  DeviceArray<float> partials;    ///< dw of chunks of tokens [chunks, L+2, D]
  DeviceArray<float> mix;         ///< u of a group's sites, then x of a group's sources [g-1, N, D]
  DeviceArray<float> statistics;  ///< their m, z; then sum a p [g-1, 2, N, H]
  DeviceArray<float> dsources;    ///< naive only: float gradients [L+1, N, D]
};

}  // namespace attnres::ATTNRES_BACKEND
