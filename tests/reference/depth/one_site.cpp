// One token, two sources, one site with two depth heads of two channels: the smallest case in which
// everything happens.  docs/stepping-through.md walks through it in a debugger.
#include "reference/depth/attention.h"
#include "reference/rms_norm.h"

using namespace attnres;

int main() {
  // L = 1: the readout, site 2, reads the embedding v_0 and the output v_1 of sublayer 1.
  DepthPlan plan = make_depth_plan(1, {.kind = DepthMixing::Kind::attention, .heads = 2});
  plan.consumers[0] = {{.site = 2, .position = 0}};  // site 1 reads v_0 too; here it stays out

  SourceBank<double> bank(1, plan, 4);
  bank.sources[0] << 1, 2, 2, 4;
  bank.sources[1] << 2, 4, -1, 2;
  for (const Index i : {0, 1})
    rms_norm_statistics<double>(bank.sources[i], 0.0, bank.rstd[i]);  // both rows have RMS 2.5

  RoutingState<double> state(1, plan, 4, 2);
  state.folded[2] << 0.5, 0.5, 1, 0;  // w = q ∘ g
  Matrix<double> output(1, 4), output_gradient(1, 4);
  depth_attention_forward<double>(bank, plan, 2, state, output);

  output_gradient << 1, 0, 0, 1;  // G = dLoss/do
  depth_attention_keep_gradient<double>(output_gradient, output, 2, state);

  Matrix<double> dv(1, 4);
  Vector<double> dw(4);
  GatherPartials<double> partials(1, plan.sites(), 4);
  partials.dfolded.setZero();
  for (const Index i : {1, 0})
    depth_attention_backward_gather<double>(bank, plan, i, state, false, dv, partials);
  sum_partials<double>(partials, plan.sites(), 2, dw);
  return 0;
}
