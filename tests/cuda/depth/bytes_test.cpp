// docs/kernels.md's byte table, from the emulator's counters.
#include "cuda/benchmark/routing_step.h"
#include "cuda/depth/byte_model.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::emulated;

namespace {

struct Model {
  int sublayers, channels, heads;
  double fused_limit, grouped_limit;  // bytes per (site, source, channel); share of fused
};

// The shapes of the MHAR paper's 100M, 350M and 1B models.
const Model kModels[] = {
    {24, 512, 4, 5.1, 0.75}, {48, 1024, 8, 4.7, 0.52}, {72, 1280, 8, 4.5, 0.42}};

struct Measured {
  double bytes_per_token, per_pair, parameters;
};

Measured measure(const Model& model, Generation generation, int group = 0, int tokens = 4) {
  DepthShape shape;
  shape.mixing = {DepthMixing::Kind::attention, model.heads, 1, 0};
  shape.sublayers = model.sublayers;
  shape.tokens = tokens;
  shape.channels = model.channels;
  shape.generation = generation;
  shape.group = group;
  RoutingStep<__nv_bfloat16> step(shape);
  cuda_emulator::LaunchRecorder recorder;
  step.forward();
  step.backward();
  const double pairs = double(step.mixer().plan().pairs()) * model.channels;
  const double bytes = double(recorder.total().tokens()) / tokens;
  return {bytes, bytes / pairs, double(recorder.total().parameters) / pairs};
}

}  // namespace

TEST_CASE(
    "routing one site at a time moves 5.1, 4.7 and 4.5 bytes per source and channel, at most") {
  for (const Model& model : kModels) {
    const Measured fused = measure(model, Generation::fused);
    CAPTURE(model.sublayers);
    CHECK(fused.per_pair <= model.fused_limit);
    CHECK(fused.per_pair >= 4.0);  // 2 for every source and 2 for every gradient: none is skipped
  }
}

TEST_CASE("routing in groups moves 75, 52 and 42 percent of that, at most") {
  for (const Model& model : kModels) {
    const double fused = measure(model, Generation::fused).per_pair;
    const double grouped = measure(model, Generation::grouped).per_pair;
    CAPTURE(model.sublayers);
    CHECK(grouped / fused <= model.grouped_limit);
  }
}

TEST_CASE("the naive kernels move several times as much") {
  const Model model{6, 64, 2, 0, 0};
  CHECK(measure(model, Generation::naive).per_pair >
        3 * measure(model, Generation::fused).per_pair);
}

TEST_CASE("the byte model predicts every counted byte, whatever the group") {
  const Model model{24, 512, 4, 0, 0};
  const DepthPlan plan =
      make_depth_plan(model.sublayers, {DepthMixing::Kind::attention, model.heads, 1, 0});
  CHECK(measure(model, Generation::fused).bytes_per_token ==
        routing_bytes_per_token(plan, model.channels, model.heads, 2, 1));
  for (const int group : {2, 3, 5, 8})
    CHECK(measure(model, Generation::grouped, group).bytes_per_token ==
          routing_bytes_per_token(plan, model.channels, model.heads, 2, group));
}

TEST_CASE("the chosen group moves the fewest bytes of all that fit") {
  for (const Model& model : kModels) {
    const DepthPlan plan =
        make_depth_plan(model.sublayers, {DepthMixing::Kind::attention, model.heads, 1, 0});
    const int best = best_group(plan, model.channels, model.heads, 2, kMaxGroup);
    const auto bytes = [&](int group) {
      return routing_bytes_per_token(plan, model.channels, model.heads, 2, group);
    };
    for (int group = 1; group <= kMaxGroup; ++group) CHECK(bytes(best) <= bytes(group));
    CHECK(best > 3);
  }
}

TEST_CASE("bytes per token do not depend on the number of tokens") {
  const Model model{6, 192, 3, 0, 0};
  for (const Generation generation : {Generation::fused, Generation::grouped})
    CHECK(measure(model, generation, 0, 3).bytes_per_token ==
          measure(model, generation, 0, 50).bytes_per_token);
}
