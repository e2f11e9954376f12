// Depth on a device: the mixer seam of reference/depth/mixer.h with device pointers.  It owns the
// bank, walks the plan, and launches one of three generations of kernels.
#pragma once

#include <vector>

#include "cuda/depth/bank.h"
#include "cuda/depth/device_plan.h"

namespace attnres::ATTNRES_BACKEND {

/// Parameters of one site on the device, or their gradients; nullptr where the site has none.
struct SiteParameters {
  float* query = nullptr;     ///< q [D]
  float* key_gain = nullptr;  ///< g [D]
  float* gate = nullptr;      ///< alpha [1], delta form only
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
    return bank_.weights.data() + lists_.first_pair(site) * scalars_;
  }

 private:
  void copy_rows(const T* from, T* to);
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
  T* carry_out(int source) { return plan_.continues[source] ? carry_.data() : nullptr; }
  const T* carry_in(int source) {
    const bool continued = source < shape_.sublayers && plan_.continues[source + 1];
    return continued ? carry_.data() : nullptr;
  }

  DepthShape shape_;
  DepthPlan plan_;
  int group_;
  DevicePlan lists_;
  int64_t rows_, scalars_;  // N * D, N * H
  std::optional<RowLayout> site_row_, group_row_;
  DepthBank<T> bank_;
  cudaStream_t stream_ = nullptr;
  std::vector<SiteParameters> parameters_;
  DeviceArray<T> carry_;              // dLoss/d(source l+1) for source l that it continued
  DeviceArray<float> stream_values_;  // residual stream, and its gradient
  DeviceArray<T> outputs_;            // delta: o of every site [L+1, N, D]
  DeviceArray<T> scratch_;            // delta: dLoss/do, dLoss/dv
  DeviceArray<float> dgates_;         // delta: <dinput, o> per token [L+1, N]
  DeviceArray<float> dgain_partials_;
};

}  // namespace attnres::ATTNRES_BACKEND
