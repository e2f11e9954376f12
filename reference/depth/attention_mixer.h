// Depth attention as a mixer: full, block, windowed, any number of heads.  The mix replaces the
// residual stream.  Walks a plan with the operations of attention.h (or, in groups, of grouped.h).
#pragma once

#include "reference/depth/grouped.h"
#include "reference/depth/mixer.h"

namespace attnres {

template <class Scalar>
class AttentionMixer final : public DepthMixer<Scalar> {
 public:
  using typename DepthMixer<Scalar>::Sites;

  AttentionMixer(const ModelConfig& config, Index tokens);

  /// Folds the queries, w_l = q_l ∘ g_l.  Sites without a query (delta's readout) stay unused.
  void begin(Sites parameters) override;
  /// source l = output, plus source l-1 where the plan continues a block; and its rstd.
  void write(Index sublayer, MatrixIn<Scalar> output) override;
  void read(Index site, MatrixOut<Scalar> input) override;

  void begin_backward() override { partials_.dfolded.setZero(); }
  /// Keeps G_l and delta_l for the sources, which gather them later.
  void read_backward(Index site, MatrixIn<Scalar> input, MatrixIn<Scalar> dinput) override;
  /// dsource_l, gathered from all consumers; a continued block passes it on to source l-1.
  void write_backward(Index sublayer, MatrixOut<Scalar> doutput) override;
  /// dq += dw ∘ g;  dg += dw ∘ q.
  void end_backward(Sites parameters, Sites gradients) override;

  std::size_t bytes() const override;
  const DepthPlan* plan() const override { return &plan_; }
  Matrix<Scalar> weights(Index site) const override { return routing_.weights[site]; }

 private:
  Index group_sites_;
  Scalar eps_;
  DepthPlan plan_;
  SourceBank<Scalar> bank_;
  RoutingState<Scalar> routing_;
  std::vector<PartialMix<Scalar>> mixes_;  // [group_sites], empty when sites are read one by one
  GatherPartials<Scalar> partials_;
  Matrix<Scalar> dblock_;   // dsource l+1, for source l that it continued; empty without blocks
  Vector<Scalar> dfolded_;  // dw of one site [D]
};

}  // namespace attnres
