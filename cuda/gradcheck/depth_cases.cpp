#include "cuda/gradcheck/depth_cases.h"

#include "cuda/depth/row_layout.h"

namespace attnres {
namespace {

using Kind = DepthMixing::Kind;

struct Plan {
  const char* name;
  DepthMixing mixing;
};

const Plan kPlans[] = {
    {"full", {Kind::attention, 1, 1, 0}},    {"block", {Kind::attention, 1, 3, 0}},
    {"window", {Kind::attention, 1, 1, 3}},  {"delta", {Kind::delta, 1, 1, 0}},
    {"delta-block", {Kind::delta, 1, 4, 0}}, {"residual", {Kind::residual, 1, 1, 0}},
};

constexpr Generation kGenerations[] = {Generation::naive, Generation::fused, Generation::grouped};
constexpr RowType kTypes[] = {RowType::fp32, RowType::bf16};

DepthCase make(const Plan& plan, int heads, int channels, Generation generation, RowType type) {
  DepthCase c;
  c.plan = plan.name;
  c.mixing = plan.mixing;
  c.mixing.heads = heads;
  c.channels = channels;
  c.generation = generation;
  c.type = type;
  // The pre-norm is fused wherever it can be.
  c.pre_norm = generation != Generation::naive && plan.mixing.kind == Kind::attention;
  return c;
}

}  // namespace

bool CaseFilter::selects(const DepthCase& c) const {
  return (plan.empty() || plan == c.plan) &&
         (type.empty() || (type == "bf16") == (c.type == RowType::bf16)) &&
         (heads == 0 || heads == c.mixing.heads) && (channels == 0 || channels == c.channels);
}

std::vector<DepthCase> depth_cases(const CaseFilter& filter) {
  std::vector<DepthCase> all;
  for (const RowType type : kTypes)
    for (const Generation generation : kGenerations) {
      const auto add = [&](const Plan& plan, int heads, int channels, int sublayers, int tokens,
                           int group = 0) {
        DepthCase c = make(plan, heads, channels, generation, type);
        c.sublayers = sublayers;
        c.tokens = tokens;
        c.group = generation == Generation::grouped ? group : 0;
        c.seed = all.size() + 1;
        all.push_back(c);
      };
      for (const int channels : {64, 192, 512, 576, 768, 1024, 1280})
        for (const int heads : {1, 2, 3, 4, 8, 16})
          if (channels % heads == 0) add(kPlans[0], heads, channels, 4, 3, 3);
      for (const Plan& plan : kPlans)
        for (const int heads : {1, 3}) add(plan, heads, 192, 8, 11, 3);
      add(kPlans[0], 4, 192, 6, 1);  // one token
      add(kPlans[0], 4, 64, 2, 5);   // the shortest model
      // Deep, and more tokens than a block has teams; the naive kernels are slow to emulate.
      add(kPlans[0], 4, 64, 24, generation == Generation::naive ? 3 : 37);
      add(kPlans[1], 2, 64, 14, 9);  // a last partial block
      if (generation == Generation::naive) continue;
      add(kPlans[0], 40, 40, 4, 3);   // heads of one channel, more than a warp has lanes
      add(kPlans[0], 1, 4096, 4, 3);  // a row that needs many warps
      if (generation == Generation::grouped)
        for (int group = 2; group <= kMaxGroup; ++group) add(kPlans[0], 2, 64, 12, 3, group);
    }
  std::vector<DepthCase> selected;
  for (const DepthCase& c : all)
    if (filter.selects(c)) selected.push_back(c);
  return selected;
}

}  // namespace attnres
