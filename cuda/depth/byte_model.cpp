#include "cuda/depth/byte_model.h"

#include <algorithm>
#include <set>

#include "cuda/depth/query_tiling.h"

namespace attnres {
namespace {

struct Cost {
  double row, wide_row, head, scalar;  // bytes of a row [D], a float row, float [H], one float
};

int last_site(const DepthPlan& plan) {
  int site = int(plan.sites());
  while (site > 0 && plan.sources[site].empty()) --site;
  return site;
}

double forward_bytes(const DepthPlan& plan, const Cost& cost, int group) {
  const int last = last_site(plan);
  double bytes = 0;
  for (int first = 1; first <= last; first += group) {
    const int end = std::min(first + group, last + 1);
    std::set<Index> old;  // read once for the whole group
    for (int site = first; site < end; ++site) {
      const auto& sources = plan.sources[site];
      const auto is_old = [&](Index i) { return i < first; };
      const auto finished = std::count_if(sources.begin(), sources.end(), is_old);
      const double born = double(sources.size()) - double(finished);
      for (const Index i : sources)
        if (is_old(i)) old.insert(i);
      bytes += born * (cost.row + cost.scalar);     // phase 2: v and r
      bytes += double(sources.size()) * cost.head;  // a
      bytes += cost.row;                            // o
      if (site > first)                             // m, z, u and the logits go through memory
        bytes += 2 * (cost.wide_row + 2 * cost.head) + double(finished) * 2 * cost.head;
    }
    bytes += double(old.size()) * (cost.row + cost.scalar);  // phase 1: v and r
  }
  return bytes;
}

// dw: v, r in every tile, e of the heads that each tile touches; once per pass over the tokens.
double query_gradient_bytes(int consumers, const Cost& cost, int channels, int heads) {
  if (consumers == 0) return 0;
  const QueryTiling tile(channels, heads, consumers);
  int touched = 0;
  for (int t = 0; t < tile.tiles; ++t) touched += tile.heads_of(t, channels, channels / heads);
  const int passes = (consumers + tile.consumers - 1) / tile.consumers;
  return passes * (cost.row + tile.tiles * cost.scalar) + 4.0 * consumers * touched;
}

double backward_bytes(const DepthPlan& plan, const Cost& cost, int channels, int heads, int group) {
  double bytes = 0;
  const int last = last_site(plan);
  bytes += last * (2 * cost.row + cost.head);  // G, o -> delta
  int top = int(plan.sublayers);
  while (top > 0 && plan.consumers[top].empty()) --top;
  for (; top >= 0; top -= group) {
    const int bottom = std::max(0, top - group + 1);
    std::set<Index> later;  // rows G read once for the whole group
    for (int i = bottom; i <= top; ++i) {
      const auto& consumers = plan.consumers[i];
      double inside = 0;
      for (const auto& consumer : consumers)
        if (consumer.site > top)
          later.insert(consumer.site);
        else
          ++inside;
      bytes += inside * (cost.row + cost.head);                              // G and delta
      bytes += double(consumers.size()) * 2 * cost.head;                     // a, e
      bytes += 2 * cost.row + cost.scalar;                                   // v, r, dv
      if (i < top) bytes += cost.row + 2 * cost.wide_row + 3 * cost.scalar;  // v, r again; partials
      bytes += query_gradient_bytes(int(consumers.size()), cost, channels, heads);
    }
    bytes += double(later.size()) * (cost.row + cost.head);
  }
  return bytes;
}

}  // namespace

PassBytes routing_bytes_by_pass(const DepthPlan& plan, int channels, int heads, int row_bytes,
                                int group) {
  const Cost cost{double(row_bytes) * channels, 4.0 * channels, 4.0 * heads, 4.0};
  return {forward_bytes(plan, cost, group), backward_bytes(plan, cost, channels, heads, group)};
}

double routing_bytes_per_token(const DepthPlan& plan, int channels, int heads, int row_bytes,
                               int group) {
  const PassBytes bytes = routing_bytes_by_pass(plan, channels, heads, row_bytes, group);
  return bytes.forward + bytes.backward;
}

int best_group(const DepthPlan& plan, int channels, int heads, int row_bytes, int max_group) {
  int best = 1;
  for (int group = 2; group <= max_group; ++group)
    if (routing_bytes_per_token(plan, channels, heads, row_bytes, group) <
        routing_bytes_per_token(plan, channels, heads, row_bytes, best))
      best = group;
  return best;
}

}  // namespace attnres
