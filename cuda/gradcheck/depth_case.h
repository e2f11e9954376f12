// The gradient check of kernels: one case is a shape and a plan; its inputs are drawn once and
// given to the float64 reference, to a plain bfloat16 evaluation and to the kernels.
#pragma once

#include <string>
#include <vector>

#include "cuda/depth/generation.h"
#include "reference/config.h"
#include "reference/tensor.h"

namespace attnres {

enum class RowType { fp32, bf16 };

struct DepthCase {
  std::string plan = "full";  ///< for people; `mixing` says what it is
  DepthMixing mixing;
  Generation generation = Generation::fused;
  RowType type = RowType::fp32;
  int sublayers = 6, tokens = 5, channels = 64;
  int group = 0;
  bool pre_norm = false;
  double eps = 1e-6;
  double logits = 4;  ///< deviation of the logits at H = 1: queries have deviation logits / sqrt(D)
  std::uint64_t seed = 1;

  std::string name() const;
};

/// What the sublayers would hand to the mixer, in both directions, and the parameters.  Rows are
/// rounded to the case's type, parameters to float: every implementation sees the same numbers.
struct DepthInputs {
  explicit DepthInputs(const DepthCase& c);

  std::vector<Matrix<double>> outputs;  ///< of sublayer 0..L [N, D]; scales differ by source
  std::vector<Matrix<double>> dinputs;  ///< of site 1..L+1 at index l: dLoss/do, or dLoss/dnormed
  std::vector<Vector<double>> queries, key_gains, norm_gains;  ///< by site [D]
  Vector<double> gates;                                        ///< by site
};

/// Everything that a mixer computes, by site or by source; empty where a form has none.
struct DepthResult {
  explicit DepthResult(const DepthCase& c);

  std::vector<Matrix<double>> inputs;    ///< what each site's sublayer reads: o, or x (+ alpha o)
  std::vector<Matrix<double>> normed;    ///< after the pre-norm
  std::vector<Matrix<double>> weights;   ///< a [N, S*H]
  std::vector<Matrix<double>> doutputs;  ///< dLoss/doutput by sublayer
  std::vector<Matrix<double>> dqueries, dkey_gains, dnorm_gains, dgates;  ///< by site, one row
};

/// The float64 reference (reference/depth/mixer.h).
DepthResult reference_result(const DepthCase& c, const DepthInputs& inputs);
/// The equations op by op in bfloat16 rows, each op's result rounded, as eager PyTorch would: the
/// yardstick of FlashAttention's three-way rule.
DepthResult plain_bf16_result(const DepthCase& c, const DepthInputs& inputs);
namespace emulated {
DepthResult kernel_result(const DepthCase& c, const DepthInputs& inputs);
}  // namespace emulated
namespace gpu {
DepthResult kernel_result(const DepthCase& c, const DepthInputs& inputs);
/// Throws with one sentence where CUDA finds no GPU that it can use.
void require_device();
}  // namespace gpu

/// x rounded to bfloat16, to nearest, ties to even.
double round_bf16(double x);
/// The configuration of a model whose depth is this case's.
ModelConfig model_of(const DepthCase& c);

}  // namespace attnres
