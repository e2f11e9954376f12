// Depth on a device: the mixer seam of reference/depth/mixer.h with device pointers.  It owns the
// banks, knows the plan, and launches one of three generations of kernels.
#pragma once

#include <vector>

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
};

/// Parameters of one site on the device, or their gradients; nullptr where the site has none.
struct SiteParameters {
  float* query = nullptr;     ///< q [D]
  float* key_gain = nullptr;  ///< g [D]
  float* gate = nullptr;      ///< alpha [1], delta form only
};

/// All that depth attention keeps on the device between the forward and the backward pass, sized
/// before anything is allocated.  Rows are T, statistics and weights float.
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

template <class T>
class DepthMixer {
 public:
  explicit DepthMixer(const DepthShape& shape);

  /// The call sequence of the reference's DepthMixer.  parameters: sites 1..L+1 at index l.
  void begin(const std::vector<SiteParameters>& parameters);
  /// Where a sublayer's output may be written in place, if its source is the output alone.
  T* source(int sublayer) { return bank_.sources.data() + sublayer * rows_; }
  void write(int sublayer, const T* output);
  /// input = what site's sublayer reads [N, D]; with a pre-norm (attention only), normed as well.
  void read(int site, T* input, const PreNorm<T>& norm = {});

  void begin_backward();
  /// Where dLoss/dinput of a site may be written in place.
  T* gradient(int site) { return bank_.gradients.data() + site * rows_; }
  /// `input` as read() gave it.  With a pre-norm, dinput is dLoss/dnormed and dgain [D] is added
  /// to.
  void read_backward(int site, const T* input, const T* dinput, const PreNorm<T>& norm = {},
                     float* dgain = nullptr);
  void write_backward(int sublayer, T* doutput);
  void end_backward(const std::vector<SiteParameters>& gradients);

  const DepthPlan& plan() const { return plan_; }
  int heads() const { return int(shape_.mixing.heads); }
  int group() const { return group_; }
  std::size_t bytes() const;
  /// a of a site [S, N, H], on the device.
  const float* weights(int site) const {
    return bank_.weights.data() + first_pair_[site] * scalars_;
  }

 private:
  void read_attention(int site, T* output, const PreNorm<T>& norm);
  void read_group(int first_site, T* output, const PreNorm<T>& norm);
  SiteForward<T> site_forward(int site, T* output, const PreNorm<T>& norm);
  void keep(int site, const T* output, const T* incoming, const PreNorm<T>& norm, float* dgain);
  void scatter(int site);
  void gather(int source, T* dsource);
  void sum_query_gradients(int source);
  void gather_group(int last, T* dsource);
  void write_zeros(int source, T* dsource);
  void naive_write_backward(int source, T* dsource);
  PartialMix partial_mix(int slot);
  PartialGather partial_gather(int slot);
  int group_of_site(int site) const { return site - (site - 1) % group_; }  // its first site
  int group_of_source(int source) const {                                   // its last source
    return last_read_ - (last_read_ - source) / group_ * group_;
  }
  T* carry_out(int source) { return plan_.continues[source] ? carry_.data() : nullptr; }
  const T* carry_in(int source) {
    const bool continued = source < shape_.sublayers && plan_.continues[source + 1];
    return continued ? carry_.data() : nullptr;
  }

  DepthShape shape_;
  DepthPlan plan_;
  int group_;
  int last_read_;           // the last source that a site reads: L, in the delta form L - 1
  int64_t rows_, scalars_;  // N * D, N * H
  std::optional<RowLayout> site_row_, group_row_;
  DepthBank<T> bank_;
  cudaStream_t stream_ = nullptr;
  std::vector<SiteParameters> parameters_;
  std::vector<int64_t> first_pair_;  // of each site

  // The plan on the device.
  DeviceArray<int> sources_;
  std::vector<int> sources_at_;  // where each site's list begins
  DeviceArray<Consumer> consumers_;
  std::vector<int> consumers_at_;
  struct GroupTable {
    int at, count;  // entries in the arrays below
  };
  DeviceArray<int> old_sources_, positions_;  // by group of sites
  std::vector<GroupTable> site_groups_;       // index: first site
  DeviceArray<int> later_sites_;              // by group of sources
  DeviceArray<int64_t> pairs_;
  std::vector<GroupTable> source_groups_;  // index: last source

  DeviceArray<T> carry_;              // dLoss/d(source l+1) for source l that it continued
  DeviceArray<float> stream_values_;  // residual stream, and its gradient
  DeviceArray<T> outputs_;            // delta: o of every site [L+1, N, D]
  DeviceArray<T> scratch_;            // delta: dLoss/do, dLoss/dv
  DeviceArray<float> dgates_;         // delta: <dinput, o> per token [L+1, N]
  DeviceArray<float> dgain_partials_;
};

}  // namespace attnres::ATTNRES_BACKEND
