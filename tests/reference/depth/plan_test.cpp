// Who reads what: the plans of math.md section 2, written out.
#include "reference/depth/plan.h"

#include <set>

#include "tests/support.h"

using namespace attnres;
using Sources = std::vector<Index>;

TEST_CASE("full: site l reads v_0 .. v_{l-1}, the readout reads all") {
  const DepthPlan plan = make_depth_plan(4, {.kind = DepthMixing::Kind::attention});
  CHECK(plan.sources[1] == Sources{0});
  CHECK(plan.sources[3] == Sources{0, 1, 2});
  CHECK(plan.sources[5] == Sources{0, 1, 2, 3, 4});
  CHECK(plan.pairs() == 1 + 2 + 3 + 4 + 5);
}

TEST_CASE("block: finished blocks, and the running partial sum if the block has begun") {
  // L = 7 in blocks of 3: sublayers 1-3, 4-6, and 7 alone.  Block sums are sources 3, 6 and 7.
  const DepthPlan plan =
      make_depth_plan(7, {.kind = DepthMixing::Kind::attention, .block_sublayers = 3});
  CHECK(plan.sources[1] == Sources{0});     // the embedding is block b_0, alone
  CHECK(plan.sources[2] == Sources{0, 1});  // b_0 and the running sum of block 1
  CHECK(plan.sources[3] == Sources{0, 2});
  CHECK(plan.sources[4] == Sources{0, 3});  // the first site of a block: finished blocks only
  CHECK(plan.sources[5] == Sources{0, 3, 4});
  CHECK(plan.sources[7] == Sources{0, 3, 6});
  CHECK(plan.sources[8] == Sources{0, 3, 6, 7});  // the readout also reads the last, partial block
  CHECK(plan.continues == std::vector<bool>{false, false, true, true, false, true, true, false});
}

TEST_CASE("block AttnRes with one sublayer per block is full AttnRes") {
  const DepthPlan full = make_depth_plan(9, {.kind = DepthMixing::Kind::attention});
  for (Index l = 1; l <= 9; ++l) CHECK(!full.continues[l]);
  for (Index l = 1; l <= 10; ++l) CHECK(Index(full.sources[l].size()) == l);
}

TEST_CASE("one block over all sublayers reads the embedding and one running sum") {
  const DepthPlan plan =
      make_depth_plan(5, {.kind = DepthMixing::Kind::attention, .block_sublayers = 99});
  for (Index l = 2; l <= 6; ++l) CHECK(plan.sources[l] == Sources{0, l - 1});
}

TEST_CASE("window: the embedding and the last W sources, none twice") {
  const DepthPlan plan = make_depth_plan(5, {.kind = DepthMixing::Kind::attention, .window = 2});
  CHECK(plan.sources[1] == Sources{0});
  CHECK(plan.sources[2] == Sources{0, 1});
  CHECK(plan.sources[4] == Sources{0, 2, 3});
  CHECK(plan.sources[6] == Sources{0, 4, 5});
}

TEST_CASE("the readout of the delta form routes nothing") {
  const DepthPlan plan = make_depth_plan(4, {.kind = DepthMixing::Kind::delta});
  CHECK(plan.sources[5].empty());
  CHECK(plan.sources[4] == Sources{0, 1, 2, 3});
}

TEST_CASE("consumers are the inverse of sources, for any L and block size") {
  for (Index L = 1; L <= 12; ++L)
    for (Index block = 1; block <= 13; ++block) {
      const DepthPlan plan =
          make_depth_plan(L, {.kind = DepthMixing::Kind::attention, .block_sublayers = block});
      Index seen = 0;
      for (Index i = 0; i <= L; ++i)
        for (const auto [site, k] : plan.consumers[i]) {
          REQUIRE(plan.sources[site][k] == i);
          REQUIRE(i < site);  // nobody reads what is not written yet
          ++seen;
        }
      CHECK(seen == plan.pairs());
      // Every output reaches the readout: directly, or through the sums of its block.
      std::set<Index> reached;
      for (Index source : plan.sources[L + 1]) {
        for (reached.insert(source); plan.continues[source]; reached.insert(source)) --source;
      }
      CHECK(Index(reached.size()) == L + 1);
    }
}

TEST_CASE("site names are parameter names") {
  const DepthPlan plan = make_depth_plan(4, {.kind = DepthMixing::Kind::attention});
  CHECK(site_name(plan, 1) == "model.layers.0.self_attention_res");
  CHECK(site_name(plan, 4) == "model.layers.1.mlp_res");
  CHECK(site_name(plan, 5) == "model.output_attn_res");
}
