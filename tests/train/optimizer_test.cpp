// AdamW against its equations, and the schedule as a pure function of the step.
#include <cmath>

#include "tests/train/train_support.h"
#include "train/adamw.h"
#include "train/schedule.h"

using namespace attnres;
using namespace attnres::test;

TEST_CASE("AdamW follows Loshchilov & Hutter's algorithm 2, with clipping before the moments") {
  const ModelConfig config = small_config({DepthMixing::Kind::attention, 2});
  Parameters<float> parameters(config);
  make_interesting(parameters);
  AdamWState state(parameters.layout().size);
  const AdamWConfig adamw{
      .beta1 = 0.8, .beta2 = 0.9, .eps = 1e-3, .weight_decay = 0.2, .clip = 0.5};
  V p = parameters.values().cast<double>(), m = V::Zero(p.size()), v = V::Zero(p.size());
  Random random(4);
  for (int t = 1; t <= 3; ++t) {
    const Vector<float> g = random.vector(p.size()).cast<float>();
    V tile_sums;
    const double norm = gradient_norm(g, tile_sums);
    CHECK(norm == doctest::Approx(g.cast<double>().norm()).epsilon(1e-12));
    adamw_step(adamw, 1e-2, t, norm, g, parameters, state);
    for (const auto& spec : parameters.layout().specs) {
      const bool is_matrix =
          spec.name.ends_with("_proj.weight") && !spec.name.ends_with("res_proj.weight");
      const double decay = is_matrix || spec.name == "model.embed_tokens.weight" ? 0.2 : 0.0;
      for (Index i = spec.offset; i < spec.offset + spec.size(); ++i) {
        const double clipped = double(g[i]) * std::min(1.0, 0.5 / norm);
        m[i] = 0.8 * m[i] + 0.2 * clipped;
        v[i] = 0.9 * v[i] + 0.1 * clipped * clipped;
        const double m_hat = m[i] / (1 - std::pow(0.8, t)), v_hat = v[i] / (1 - std::pow(0.9, t));
        p[i] -= 1e-2 * (m_hat / (std::sqrt(v_hat) + 1e-3) + decay * p[i]);
      }
    }
    CHECK(max_difference(parameters.values().cast<double>(), p) < 1e-5);
  }
}

TEST_CASE("a gradient below the clip is not scaled, and clip 0 never scales") {
  const ModelConfig config = small_config();
  Parameters<float> a(config), b(config), c(config);
  AdamWState sa(a.layout().size), sb(b.layout().size), sc(c.layout().size);
  const Vector<float> g = Vector<float>::Constant(a.layout().size, 1e-4f);
  V tile_sums;
  const double norm = gradient_norm(g, tile_sums);
  adamw_step({.clip = 1.0}, 1e-3, 1, norm, g, a, sa);
  adamw_step({.clip = 0.0}, 1e-3, 1, norm, g, b, sb);
  adamw_step({.clip = norm / 10}, 1e-3, 1, norm, g, c, sc);
  CHECK(same_bits(sa.m, sb.m));
  CHECK(sc.m[0] == doctest::Approx(sa.m[0] / 10));
}

TEST_CASE(
    "cosine: linear warm-up to the peak, half-way mean, the final fraction at the last step") {
  const Schedule s{
      .shape = "cosine", .peak = 2.0, .final_fraction = 0.1, .warmup = 10, .steps = 110};
  CHECK(s.rate(1) == doctest::Approx(0.2));
  CHECK(s.rate(10) == doctest::Approx(2.0));
  CHECK(s.rate(60) == doctest::Approx(1.1));
  CHECK(s.rate(110) == doctest::Approx(0.2));
  for (Index t = 11; t <= 110; ++t) CHECK(s.rate(t) < s.rate(t - 1));
}

TEST_CASE("WSD: stable until the decay, then linear; constant stays") {
  const Schedule s{.shape = "wsd",
                   .peak = 1.0,
                   .final_fraction = 0.0,
                   .decay_fraction = 0.25,
                   .warmup = 5,
                   .steps = 100};
  CHECK(s.rate(5) == 1.0);
  CHECK(s.rate(75) == 1.0);
  CHECK(s.rate(88) == doctest::Approx(12.0 / 25));
  CHECK(s.rate(100) == doctest::Approx(0.0));
  const Schedule constant{.shape = "constant", .peak = 0.3, .warmup = 0, .steps = 10};
  CHECK(constant.rate(1) == 0.3);
  CHECK(constant.rate(10) == 0.3);
}

TEST_CASE("the rate is a pure function of the step: order of asking does not matter") {
  const Schedule s{.peak = 1e-3, .warmup = 7, .steps = 50};
  const double at_30 = s.rate(30);
  for (Index t = 50; t >= 1; --t) s.rate(t);
  CHECK(s.rate(30) == at_30);
}

TEST_CASE("schedules that make no sense are refused") {
  CHECK(
      contains(error_of([] { Schedule{.shape = "linear"}.validate(); }), "\"linear\" is unknown"));
  CHECK(contains(error_of([] { Schedule{.peak = 0}.validate(); }), "positive"));
  CHECK(contains(error_of([] { Schedule{.warmup = 9, .steps = 8}.validate(); }), "warm-up of 9"));
}
