// Validation is a fixed token set with the same result for any batch size; the bigram baseline.
#include "train/evaluate.h"

#include <numbers>

#include "tests/train/train_support.h"
#include "train/depth_report.h"
#include "train/heat_map.h"
#include "train/sampler.h"

using namespace attnres;
using namespace attnres::test;

TEST_CASE("evaluation is the same for any batch size") {
  const Windows windows(small_data().validation, 16);
  Evaluation first;
  for (const Index batch : {1, 3, 8}) {
    ReferenceModel model(tiny_model(), batch, 16);
    make_interesting(model.parameters());
    const Evaluation e = evaluate(model, windows, windows.count(), batch, true);
    CHECK(e.tokens == small_data().validation.size() - 1);
    CHECK(e.bytes == e.tokens);
    if (batch == 1) first = e;
    CHECK(e.hash == first.hash);
    CHECK(e.loss() == doctest::Approx(first.loss()).epsilon(1e-6));
  }
  CHECK(first.bits_per_byte() == doctest::Approx(first.loss() / std::numbers::ln2));
}

TEST_CASE("a model made for inference has the same losses, bit for bit, and cannot be trained") {
  ReferenceModel training(tiny_model(), 2, 16), inference(tiny_model(), 2, 16, Use::inference);
  make_interesting(training.parameters());
  make_interesting(inference.parameters());
  const Windows windows(small_data().validation, 16);
  const Evaluation a = evaluate(training, windows, windows.count(), 2, true);
  const Evaluation b = evaluate(inference, windows, windows.count(), 2, true);
  CHECK(a.loss_sum == b.loss_sum);
  std::vector<std::int32_t> tokens(32, 1), targets(32, 2);
  CHECK(contains(error_of([&] {
                   inference.accumulate({2, 16, tokens, targets}, 1.0f);
                 }),
                 "no gradients"));
}

TEST_CASE("an untrained model is as good as guessing; ignored targets do not count") {
  ReferenceModel model(tiny_model(), 4, 16);
  initialise(model.parameters(), 1);
  const Windows windows(small_data().validation, 16);
  CHECK(evaluate(model, windows, windows.count(), 4, true).loss() ==
        doctest::Approx(std::log(320)).epsilon(0.02));
}

TEST_CASE("the bigram model of a two-letter cycle knows what comes next") {
  TokenData data;
  std::vector<std::uint16_t> ids;
  for (int i = 0; i < 20000; ++i) ids.push_back(i % 2 ? 'a' : 'b');
  data.append(ids);
  // Each letter was seen 10,000 times with one successor: p = (10,000 + 1) / (10,000 + 257).
  CHECK(bigram_bits_per_byte(data, data.part(0, 100), 99) ==
        doctest::Approx(-std::log2(10001.0 / 10257.0)).epsilon(1e-3));
}

TEST_CASE("sampling is reproducible, greedy at temperature 0, and never draws padding") {
  ReferenceModel model(tiny_model(), 1, 16);
  make_interesting(model.parameters());
  const auto draw = [&](SamplingOptions options) {
    options.tokens = 40;
    std::vector<std::int32_t> tokens;
    sample(model, {1, 2, 3}, options, [&](std::int32_t token) {
      tokens.push_back(token);
      return true;
    });
    return tokens;
  };
  const auto a = draw({.temperature = 5, .seed = 1, .vocabulary = 20});
  CHECK(a == draw({.temperature = 5, .seed = 1, .vocabulary = 20}));
  CHECK(a != draw({.temperature = 5, .seed = 2, .vocabulary = 20}));
  for (const auto token : a) CHECK(token < 20);
  const auto greedy = draw({.temperature = 0, .seed = 1, .vocabulary = 320});
  CHECK(greedy == draw({.temperature = 0, .seed = 9, .vocabulary = 320}));
  CHECK(greedy == draw({.temperature = 3, .top_k = 1, .seed = 9, .vocabulary = 320}));
  CHECK(greedy == draw({.temperature = 3, .top_p = 1e-6, .seed = 9, .vocabulary = 320}));
}

TEST_CASE("next_logits ignores what lies beyond the prompt: any padding, any length") {
  ReferenceModel model(tiny_model(), 2, 16);
  make_interesting(model.parameters());
  Random random(7);
  const auto tokens = random.tokens(32, 300);
  std::vector<float> logits(320), whole(320);
  TransformerState<float> state(model.config(), 2, 16);
  Matrix<float> all(32, 320);
  transformer_logits<float>(model.parameters(), {2, 16, tokens, tokens}, state, all);
  model.next_logits(std::span(tokens).first(11), logits);
  for (Index v = 0; v < 320; ++v) CHECK(logits[v] == doctest::Approx(all(10, v)).epsilon(1e-5));
}

TEST_CASE("the depth report: weights average to one, entropies lie between 0 and log S") {
  ReferenceModel model(tiny_model({DepthMixing::Kind::attention, 3}), 2, 16);
  make_interesting(model.parameters());
  const Windows windows(small_data().validation, 16);
  const DepthReport report = inspect_depth(model, windows, 4);
  REQUIRE(report.sites.size() == 7);
  for (std::size_t l = 0; l < 7; ++l) {
    const auto& site = report.sites[l];
    CHECK(site.sources.size() == l + 1);
    for (Index h = 0; h < 3; ++h) {
      CHECK(site.mean_weight.col(h).sum() == doctest::Approx(1).epsilon(1e-5));
      CHECK(site.entropy[h] >= 0);
      CHECK(site.entropy[h] <= std::log(double(l + 1)) + 1e-6);
    }
  }
  CHECK(report.output_rms.size() == 7);
  for (const double norm : report.gradient_norm) CHECK(norm > 0);
  CHECK(model.gradients().values().isZero(0));
  const std::string svg = depth_svg(report, "title");
  CHECK(contains(svg, "depth head 3"));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(contains(heat_map_text(report, false), "depth head 1 of 3"));
}

TEST_CASE("a model with zero queries shows a uniform heat map; a residual model shows none") {
  ReferenceModel model(tiny_model(), 2, 16), residual(tiny_model({}), 2, 16);
  initialise(model.parameters(), 1);
  initialise(residual.parameters(), 1);
  const Windows windows(small_data().validation, 16);
  const DepthReport report = inspect_depth(model, windows, 1);
  for (const auto& site : report.sites)
    CHECK(site.mean_weight.isConstant(1.0 / double(site.sources.size()), 1e-6));
  const DepthReport none = inspect_depth(residual, windows, 1);
  CHECK(none.sites.empty());
  CHECK(!contains(depth_svg(none, ""), "depth head"));
  CHECK(contains(depth_svg(none, ""), "gradient norm"));
  CHECK(none.output_rms.size() == 7);
}
