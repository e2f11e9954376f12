#include "reference/depth/plan.h"

namespace attnres {

Index DepthPlan::pairs() const {
  Index count = 0;
  for (const auto& list : sources) count += Index(list.size());
  return count;
}

namespace {

std::vector<Index> window_sources(Index site, Index window) {
  std::vector<Index> list = {0};
  for (Index i = std::max<Index>(1, site - window); i < site; ++i) list.push_back(i);
  return list;
}

// b_0, the last source of every finished block, and the running block if it has begun.
std::vector<Index> block_sources(Index site, Index block_sublayers) {
  std::vector<Index> list = {0};
  for (Index last = block_sublayers; last < site; last += block_sublayers) list.push_back(last);
  if (list.back() != site - 1) list.push_back(site - 1);
  return list;
}

}  // namespace

DepthPlan make_depth_plan(Index sublayers, const DepthMixing& mixing) {
  DepthPlan plan;
  plan.sublayers = sublayers;
  plan.continues.assign(sublayers + 1, false);
  for (Index l = 1; l <= sublayers; ++l) plan.continues[l] = (l - 1) % mixing.block_sublayers != 0;
  plan.sources.resize(sublayers + 2);
  plan.consumers.resize(sublayers + 1);
  const Index last_site = mixing.kind == DepthMixing::Kind::delta ? sublayers : sublayers + 1;
  for (Index site = 1; site <= last_site; ++site) {
    plan.sources[site] = mixing.window > 0 ? window_sources(site, mixing.window)
                                           : block_sources(site, mixing.block_sublayers);
    for (Index k = 0; k < Index(plan.sources[site].size()); ++k)
      plan.consumers[plan.sources[site][k]].push_back({site, k});
  }
  return plan;
}

std::string source_name(Index source) {
  if (source == 0) return "embedding";
  return "layer " + std::to_string((source - 1) / 2) + (source % 2 == 1 ? " attention" : " mlp");
}

std::string site_name(const DepthPlan& plan, Index site) {
  if (site == plan.sublayers + 1) return "model.output_attn_res";
  return "model.layers." + std::to_string((site - 1) / 2) +
         (site % 2 == 1 ? ".self_attention_res" : ".mlp_res");
}

}  // namespace attnres
