// The gated delta form as a mixer: sublayer l reads x_l + alpha_l o_l, where x is the residual
// stream and o_l depth attention over the same history; the readout is x.
// Delta Attention Residuals, arXiv 2605.18855.
#pragma once

#include "reference/depth/attention_mixer.h"
#include "reference/depth/residual_mixer.h"

namespace attnres {

template <class Scalar>
class DeltaMixer final : public DepthMixer<Scalar> {
 public:
  using typename DepthMixer<Scalar>::Sites;

  DeltaMixer(const ModelConfig& config, Index tokens);

  void begin(Sites parameters) override;
  void write(Index sublayer, MatrixIn<Scalar> output) override;
  void read(Index site, MatrixOut<Scalar> input) override;

  void begin_backward() override;
  void read_backward(Index site, MatrixIn<Scalar> input, MatrixIn<Scalar> dinput) override;
  void write_backward(Index sublayer, MatrixOut<Scalar> doutput) override;
  void end_backward(Sites parameters, Sites gradients) override;

  std::size_t bytes() const override;
  const DepthPlan* plan() const override { return attention_.plan(); }
  Matrix<Scalar> weights(Index site) const override { return attention_.weights(site); }

 private:
  Index sublayers_;
  ResidualMixer<Scalar> residual_;
  AttentionMixer<Scalar> attention_;
  std::vector<Scalar> gates_;  // alpha_l, [L+1], index 0 unused
  std::vector<Scalar> dgates_;
  std::vector<Matrix<Scalar>> outputs_;  // o_l [N, D], kept because dalpha = <dinput, o_l>
  Matrix<Scalar> scratch_;               // alpha_l dinput, then attention's part of doutput [N, D]
  Vector<Scalar> row_sums_;
};

}  // namespace attnres
