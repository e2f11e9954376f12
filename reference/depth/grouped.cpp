#include "reference/depth/grouped.h"

#include <cmath>
#include <limits>

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {
namespace {

// Folds source `i`, at position k of a site, into the site's mix of token n: with s = r <w, v>,
//   m' = max(m, s);   z <- e^(m-m') z + e^(s-m');   u <- e^(m-m') u + e^(s-m') v.
template <class Scalar>
void fold(const SourceBank<Scalar>& bank, Index i, Index site, Index k, Index n,
          RoutingState<Scalar>& state, PartialMix<Scalar>& mix) {
  const auto v = bank.sources[i].row(n);
  const Index H = state.heads, C = bank.sources.width(i) / H;
  for (Index h = 0; h < H; ++h) {
    const auto v_h = v.segment(h * C, C);
    const Scalar s = bank.rstd[i][n] * v_h.dot(state.folded[site].segment(h * C, C));
    const Scalar m = std::max(mix.maximum(n, h), s);
    const Scalar keep = std::exp(mix.maximum(n, h) - m), add = std::exp(s - m);
    auto u = mix.unnormalised.row(n).segment(h * C, C);
    u = keep * u + add * v_h;
    mix.sum(n, h) = keep * mix.sum(n, h) + add;
    mix.maximum(n, h) = m;
    state.weights.row(site, n)[k * H + h] = s;
  }
}

}  // namespace

template <class Scalar>
void evaluate_group(const SourceBank<Scalar>& bank, const DepthPlan& plan, Index first_site,
                    RoutingState<Scalar>& state, std::span<PartialMix<Scalar>> mixes) {
  for (auto& mix : mixes) {
    mix.maximum.setConstant(-std::numeric_limits<Scalar>::infinity());
    mix.sum.setZero();
    mix.unnormalised.setZero();
  }
  const Index past_group = first_site + Index(mixes.size());
  for_each_tile(bank.sources.tokens(), kDepthTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n)
      for (Index i = 0; i < first_site; ++i)
        for (const auto [site, k] : plan.consumers[i])
          if (site >= first_site && site < past_group)
            fold(bank, i, site, k, n, state, mixes[site - first_site]);
  });
}

template <class Scalar>
void merge(PartialMix<Scalar>& into, const PartialMix<Scalar>& other) {
  const Index heads = into.sum.cols(), C = into.unnormalised.cols() / heads;
  for (Index n = 0; n < into.sum.rows(); ++n)
    for (Index h = 0; h < heads; ++h) {
      const Scalar m = std::max(into.maximum(n, h), other.maximum(n, h));
      const Scalar keep = std::exp(into.maximum(n, h) - m);
      const Scalar add = std::exp(other.maximum(n, h) - m);
      auto u = into.unnormalised.row(n).segment(h * C, C);
      u = keep * u + add * other.unnormalised.row(n).segment(h * C, C);
      into.sum(n, h) = keep * into.sum(n, h) + add * other.sum(n, h);
      into.maximum(n, h) = m;
    }
}

template <class Scalar>
void finish_grouped_site(const SourceBank<Scalar>& bank, const DepthPlan& plan, Index site,
                         Index first_site, RoutingState<Scalar>& state, PartialMix<Scalar>& mix,
                         MatrixOut<Scalar> output) {
  const auto& sources = plan.sources[site];
  const Index S = Index(sources.size()), H = state.heads, C = output.cols() / H;
  for_each_tile(output.rows(), kDepthTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      for (Index k = 0; k < S; ++k)
        if (sources[k] >= first_site) fold(bank, sources[k], site, k, n, state, mix);
      for (Index h = 0; h < H; ++h) {
        const Scalar m = mix.maximum(n, h), z = mix.sum(n, h);
        output.row(n).segment(h * C, C) = mix.unnormalised.row(n).segment(h * C, C) / z;
        for (Index k = 0; k < S; ++k) {
          Scalar& s = state.weights.row(site, n)[k * H + h];
          s = std::exp(s - m) / z;
        }
      }
    }
  });
}

#define INSTANTIATE(S)                                                                             \
  template void evaluate_group<S>(const SourceBank<S>&, const DepthPlan&, Index, RoutingState<S>&, \
                                  std::span<PartialMix<S>>);                                       \
  template void merge<S>(PartialMix<S>&, const PartialMix<S>&);                                    \
  template void finish_grouped_site<S>(const SourceBank<S>&, const DepthPlan&, Index, Index,       \
                                       RoutingState<S>&, PartialMix<S>&, MatrixOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
