// Two-phase evaluation is exact: groups of any size give what one site at a time gives.
#include "reference/depth/grouped.h"

#include "reference/rms_norm.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

// Every site of a plan over the same random sources, in groups of `group`.
std::vector<M> outputs(const DepthPlan& plan, Index group, std::vector<M>& weights) {
  const Index N = kDepthTile + 5, D = 12, H = 3;
  Random random(31);
  SourceBank<double> bank(N, plan, D);
  RoutingState<double> state(N, plan, D, H);
  for (Index i = 0; i <= plan.sublayers; ++i) {
    bank.sources[i] = random.matrix(N, D, std::pow(2.0, i % 5 - 2));
    rms_norm_statistics<double>(M(bank.sources[i]), 1e-6, bank.rstd[i]);
  }
  for (Index l = 1; l <= plan.sites(); ++l) state.folded[l] = random.vector(D);
  std::vector<PartialMix<double>> mixes(std::size_t(group), {M(N, H), M(N, H), M(N, D)});
  std::vector<M> result;
  for (Index l = 1; l <= plan.sites(); ++l) {
    M o(N, D);
    const Index first = (l - 1) / group * group + 1;
    if (group == 1) {
      depth_attention_forward<double>(bank, plan, l, state, o);
    } else {
      const Index count = std::min(group, plan.sites() - first + 1);
      if (l == first)
        evaluate_group<double>(bank, plan, first, state,
                               std::span(mixes).first(std::size_t(count)));
      finish_grouped_site<double>(bank, plan, l, first, state, mixes[l - first], o);
    }
    result.push_back(o);
    weights.push_back(state.weights[l]);
  }
  return result;
}

}  // namespace

TEST_CASE("grouped evaluation equals one site at a time, for full, block and window plans") {
  const DepthMixing mixings[] = {{.kind = DepthMixing::Kind::attention},
                                 {.kind = DepthMixing::Kind::attention, .block_sublayers = 4},
                                 {.kind = DepthMixing::Kind::attention, .window = 3}};
  for (const auto& mixing : mixings) {
    const DepthPlan plan = make_depth_plan(10, mixing);
    std::vector<M> weights;
    const auto expected = outputs(plan, 1, weights);
    for (const Index group : {2, 3, 4, 11, 20}) {
      std::vector<M> grouped_weights;
      const auto grouped = outputs(plan, group, grouped_weights);
      for (std::size_t l = 0; l < expected.size(); ++l) {
        CHECK(max_difference(grouped[l], expected[l]) < 1e-12);
        CHECK(max_difference(grouped_weights[l], weights[l]) < 1e-12);
      }
    }
  }
}

TEST_CASE("merging two partial mixes is the mix over both sets, even far apart in scale") {
  const auto mix_of = [](std::vector<double> logits, std::vector<double> values) {
    PartialMix<double> mix{M(1, 1), M::Zero(1, 1), M::Zero(1, 2)};
    mix.maximum(0, 0) = *std::max_element(logits.begin(), logits.end());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double e = std::exp(logits[i] - mix.maximum(0, 0));
      mix.sum(0, 0) += e;
      mix.unnormalised.row(0) += e * V::Constant(2, values[i]).transpose();
    }
    return mix;
  };
  PartialMix<double> left = mix_of({1.0, 700.0}, {3.0, -2.0});
  merge(left, mix_of({699.0, -5.0}, {4.0, 1.0}));
  const double odds = std::exp(-1.0);
  CHECK(left.unnormalised(0, 0) / left.sum(0, 0) == doctest::Approx((-2 + 4 * odds) / (1 + odds)));
}
