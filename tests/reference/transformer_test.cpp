// The whole model: variants that must coincide, reproducibility, causality, memory.
#include "reference/transformer.h"

#include "reference/parallel.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

using Kind = DepthMixing::Kind;

template <class Scalar>
struct Run {
  Run(const ModelConfig& config, Index B = 2, Index T = 9)
      : parameters(config), gradients(config), state(config, B, T) {
    Random random(5);
    tokens = random.tokens(B * T, config.vocab_size);
    targets = random.tokens(B * T, config.vocab_size);
    make_interesting(parameters);
  }
  double operator()() {
    gradients.values().setZero();
    const TokenBatch batch{state.shape.sequences, state.shape.positions, tokens, targets};
    return transformer_loss_and_gradients<Scalar>(
        parameters, batch, Scalar(1) / Scalar(tokens.size()), state, gradients);
  }
  Matrix<Scalar> logits() {
    Matrix<Scalar> z(Index(tokens.size()), parameters.config().vocab_size);
    const TokenBatch batch{state.shape.sequences, state.shape.positions, tokens, targets};
    transformer_logits<Scalar>(parameters, batch, state, z);
    return z;
  }
  auto gradient(const std::string& name) {
    return gradients.tensor(*gradients.layout().find(name));
  }

  Parameters<Scalar> parameters, gradients;
  TransformerState<Scalar> state;
  std::vector<std::int32_t> tokens, targets;
};

template <class Scalar>
void copy_shared(const Parameters<Scalar>& from, Parameters<Scalar>& to) {
  for (const auto& spec : to.layout().specs)
    if (const ParameterSpec* same = from.layout().find(spec.name))
      to.tensor(spec) = from.tensor(*same);
}

template <class Scalar>
void check_delta_with_closed_gates() {
  Run<Scalar> residual(small_config()), delta(small_config({Kind::delta, 2}));
  copy_shared(residual.parameters, delta.parameters);
  CHECK(residual() == delta());
  CHECK(same_bits(residual.logits(), delta.logits()));
  residual();
  delta();
  for (const auto& spec : residual.gradients.layout().specs)
    CHECK(same_bits(residual.gradients.tensor(spec), delta.gradient(spec.name)));
  double gate_gradient = 0;
  for (const auto& spec : delta.gradients.layout().specs) {
    if (spec.kind == ParameterKind::gate)
      gate_gradient += std::abs(double(delta.gradients.tensor(spec)(0, 0)));
    if (spec.kind == ParameterKind::query) CHECK(delta.gradients.tensor(spec).isZero(0));
  }
  CHECK(gate_gradient > 1e-6);  // step one reaches the gates first
}

}  // namespace

TEST_CASE("the delta form with closed gates is the residual model, bit for bit") {
  check_delta_with_closed_gates<double>();
  check_delta_with_closed_gates<float>();
}

TEST_CASE("block_sublayers = 1 is the full form, exactly; blocks change the function") {
  Run<double> full(small_config({Kind::attention, 2})),
      block(small_config({Kind::attention, 2, 1}));
  CHECK(full() == block());
  CHECK(same_bits(full.gradients.values(), block.gradients.values()));
  Run<double> blocks_of_two(small_config({Kind::attention, 2, 2}));
  CHECK(std::abs(full() - blocks_of_two()) > 1e-6);
}

TEST_CASE("a window that holds every source is the full form") {
  Run<double> full(small_config({Kind::attention, 2}));
  Run<double> window(small_config({Kind::attention, 2, 1, 6}));
  CHECK(full() == window());
  CHECK(same_bits(full.gradients.values(), window.gradients.values()));
}

TEST_CASE("the model in groups equals the model one site at a time, loss and gradients") {
  for (const Index block : {1, 4}) {
    Run<double> one(small_config({Kind::attention, 3, block}));
    const double loss = one();
    for (const Index group : {2, 3, 7}) {
      Run<double> grouped(small_config({Kind::attention, 3, block, 0, group}));
      CHECK(grouped() == doctest::Approx(loss).epsilon(1e-12));
      CHECK(max_difference(grouped.gradients.values(), one.gradients.values()) < 1e-12);
    }
  }
}

TEST_CASE("one block over everything with uniform weights reads half of embedding plus stream") {
  // Zero queries: each site's mix is (v_0 + running sum) / 2, half the residual stream.  RMSNorm
  // forgets the half, so the model agrees with the residual one up to eps.
  Run<double> residual(small_config()), block(small_config({Kind::attention, 1, 99}));
  copy_shared(residual.parameters, block.parameters);
  for (const auto& spec : block.parameters.layout().specs)
    if (spec.kind == ParameterKind::query) block.parameters.tensor(spec).setZero();
  CHECK(block() == doctest::Approx(residual()).epsilon(1e-4));
}

TEST_CASE("the first site keeps its parameters and never moves them") {
  Run<double> run(small_config({Kind::attention, 2}));
  run();
  CHECK(run.gradient("model.layers.0.self_attention_res_proj.weight").isZero(0));
  CHECK(run.gradient("model.layers.0.self_attention_res_norm.weight").isZero(0));
  CHECK(!run.gradient("model.layers.0.mlp_res_proj.weight").isZero(1e-9));
  CHECK(!run.gradient("model.output_attn_res_proj.weight").isZero(1e-9));
}

TEST_CASE("a later token changes no earlier logit") {
  for (const DepthMixing& mixing :
       {DepthMixing{}, DepthMixing{Kind::attention, 2}, DepthMixing{Kind::delta, 2}}) {
    Run<double> run(small_config(mixing), 1, 9);
    const M before = run.logits();
    run.tokens[6] = (run.tokens[6] + 1) % 17;
    const M after = run.logits();
    CHECK(same_bits(before.topRows(6), after.topRows(6)));
    CHECK(max_difference(before.bottomRows(3), after.bottomRows(3)) > 1e-6);
  }
}

TEST_CASE("sequences of a batch do not see each other") {
  Run<double> both(small_config({Kind::attention, 2}), 2, 9),
      second(small_config({Kind::attention, 2}), 1, 9);
  second.tokens.assign(both.tokens.begin() + 9, both.tokens.end());
  CHECK(max_difference(both.logits().bottomRows(9), second.logits()) < 1e-12);
}

TEST_CASE("gradients add: a second pass doubles them") {
  Run<double> run(small_config({Kind::attention, 2}));
  run();
  const V once = run.gradients.values();
  const TokenBatch batch{2, 9, run.tokens, run.targets};
  transformer_loss_and_gradients<double>(run.parameters, batch, 1.0 / 18, run.state, run.gradients);
  CHECK(max_difference(run.gradients.values(), V(2 * once)) < 1e-12);
}

TEST_CASE("float follows double") {
  Run<double> exact(small_config({Kind::attention, 4}));
  Run<float> fast(small_config({Kind::attention, 4}));
  fast.parameters.values() = exact.parameters.values().cast<float>();
  exact.parameters.values() = fast.parameters.values().cast<double>();
  CHECK(fast() == doctest::Approx(exact()).epsilon(1e-5));
  const V g = fast.gradients.values().cast<double>();
  CHECK((g - exact.gradients.values()).norm() < 1e-4 * exact.gradients.values().norm());
}

TEST_CASE("the same bits from one thread and from several") {
  for (const DepthMixing& mixing :
       {DepthMixing{}, DepthMixing{Kind::attention, 2}, DepthMixing{Kind::delta, 2}}) {
    Run<float> run(small_config(mixing), 4, 100);
    set_threads(1);
    const double one = run();
    const Vector<float> gradients = run.gradients.values();
    set_threads(3);
    CHECK(run() == one);
    CHECK(same_bits(run.gradients.values(), gradients));
    set_threads(2);
    CHECK(run() == one);
    CHECK(same_bits(run.gradients.values(), gradients));
  }
  set_threads(0);
}

TEST_CASE("the state reports the memory that it holds") {
  const Index N = 18, D = 24, F = 20, q = 24, kv = 12, heads = 4, layers = 3;
  TransformerState<float> state(small_config({Kind::attention, 2}), 2, 9);
  const Index attention = 2 * N * D + 2 * N * q + 2 * N * kv + heads * N + N;
  const Index mlp = 2 * N * D + 3 * N * F + N;
  CHECK(state.saved_bytes() == std::size_t(layers * (attention + mlp) + 2 * N * D) * sizeof(float));
  CHECK(state.mixer_bytes() >=
        std::size_t(2 * 7 * N * D) * sizeof(float));  // sources and gradients
  TransformerState<double> twice(small_config({Kind::attention, 2}), 2, 9);
  CHECK(twice.saved_bytes() == 2 * state.saved_bytes());
}

TEST_CASE("a state that saves one layer gives the same loss, bit for bit, and no gradients") {
  for (const auto& mixing :
       {DepthMixing{}, DepthMixing{Kind::attention, 2}, DepthMixing{Kind::delta, 2}}) {
    Run<float> run(small_config(mixing));
    TransformerState<float> one(small_config(mixing), 2, 9, Saved::one_layer);
    const TokenBatch batch{2, 9, run.tokens, run.targets};
    const double loss = transformer_loss<float>(run.parameters, batch, run.state);
    CHECK(transformer_loss<float>(run.parameters, batch, one) == loss);
    CHECK(same_bits(one.token_loss, run.state.token_loss));
    CHECK(one.saved_bytes() < run.state.saved_bytes() / 2);
    CHECK(contains(error_of([&] {
                     transformer_loss_and_gradients<float>(run.parameters, batch, 1, one,
                                                           run.gradients);
                   }),
                   "no backward pass"));
  }
}

TEST_CASE("initialisation depends on seed and name alone, so variants share weights") {
  Parameters<float> residual(small_config()), mhar(small_config({Kind::attention, 2}));
  initialise(residual, 7);
  initialise(mhar, 7);
  for (const auto& spec : residual.layout().specs)
    CHECK(same_bits(residual.tensor(spec), mhar.tensor(*mhar.layout().find(spec.name))));
  Parameters<float> other(small_config());
  initialise(other, 8);
  CHECK(!same_bits(residual.values(), other.values()));
  for (const auto& spec : mhar.layout().specs) {
    if (spec.kind == ParameterKind::query) CHECK(mhar.tensor(spec).isZero(0));
    if (spec.kind == ParameterKind::key_gain) CHECK(mhar.tensor(spec).isOnes(0));
  }
}

TEST_CASE("multi-head depth attention has exactly the parameters of one head") {
  CHECK(ParameterLayout(small_config({Kind::attention, 1})).size ==
        ParameterLayout(small_config({Kind::attention, 8})).size);
}

TEST_CASE("a batch of another shape is refused") {
  Run<double> run(small_config());
  const TokenBatch batch{1, 9, std::span(run.tokens).first(9), run.targets};
  CHECK(contains(error_of([&] { transformer_loss<double>(run.parameters, batch, run.state); }),
                 "1 x 9"));
}
