#include "reference/depth/attention.h"

#include <cmath>

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {
namespace {

// One token's logits [S, H] become weights: each head's softmax over its sources.
template <class Scalar>
void softmax_over_sources(Scalar* values, Index sources, Index heads) {
  MatrixView<Scalar> a(values, sources, heads);
  for (Index h = 0; h < heads; ++h) a.col(h).array() -= a.col(h).maxCoeff();
  a.array() = a.array().exp();
  for (Index h = 0; h < heads; ++h) a.col(h) /= a.col(h).sum();
}

// One head of one token's row: C channels.  Where C is known to the compiler the loops over
// channels unroll, and routing costs half as much.
template <class Scalar, int C>
using Head = Eigen::Map<Eigen::Matrix<Scalar, C, 1>>;
template <class Scalar, int C>
using ConstHead = Eigen::Map<const Eigen::Matrix<Scalar, C, 1>>;

// Calls body with the head size as a compile-time constant where it is a common one.
template <class Body>
void with_head_size(Index C, const Body& body) {
  switch (C) {
    case 16:
      return body(std::integral_constant<int, 16>());
    case 32:
      return body(std::integral_constant<int, 32>());
    case 64:
      return body(std::integral_constant<int, 64>());
    case 128:
      return body(std::integral_constant<int, 128>());
    default:
      return body(std::integral_constant<int, Eigen::Dynamic>());
  }
}

// Asks for the row that the next token will need; the hardware does not foresee the jump.
template <class Scalar>
void prefetch(const Scalar* row, Index width) {
  constexpr Index kLine = 64 / Index(sizeof(Scalar));
  for (Index c = 0; c < width; c += kLine) __builtin_prefetch(row + c);
}

// One site, one token: s, a and o as in depth_attention_forward.
template <class Scalar, int C>
void forward_token(const SourceBank<Scalar>& bank, std::span<const Index> sources, Index n,
                   Index heads, Index channels, const Scalar* w, Scalar* a, Scalar* o) {
  const Index S = Index(sources.size());
  for (Index k = 0; k < S; ++k) {
    const Scalar* v = bank.sources.row(sources[k], n);
    const Scalar r = bank.rstd[sources[k]][n];
    prefetch(bank.sources.row(sources[k], std::min(n + 1, bank.sources.tokens() - 1)),
             heads * channels);
    for (Index h = 0; h < heads; ++h)
      a[k * heads + h] = r * ConstHead<Scalar, C>(w + h * channels, channels)
                                 .dot(ConstHead<Scalar, C>(v + h * channels, channels));
  }
  softmax_over_sources(a, S, heads);
  VectorView<Scalar>(o, heads * channels).setZero();
  for (Index k = 0; k < S; ++k) {
    const Scalar* v = bank.sources.row(sources[k], n);
    for (Index h = 0; h < heads; ++h)
      Head<Scalar, C>(o + h * channels, channels) +=
          a[k * heads + h] * ConstHead<Scalar, C>(v + h * channels, channels);
  }
}

// One source, one token, one consumer: adds its share of dv, u and dw as in the gather form.
template <class Scalar, int C>
void gather_token(const RoutingState<Scalar>& state, const DepthPlan::Consumer& consumer, Index n,
                  Index channels, Scalar r, const Scalar* v, Scalar* dv, Scalar* u, Scalar* dw) {
  const Index l = consumer.site, heads = state.heads;
  const Scalar* G = state.gradients.row(l, n);
  const Scalar* w = state.folded[l].data();
  const Scalar* a = state.weights.row(l, n) + consumer.position * heads;
  const Scalar* delta = state.delta.row(l, n);
  prefetch(state.gradients.row(l, std::min(n + 1, state.gradients.tokens() - 1)), heads * channels);
  for (Index h = 0; h < heads; ++h) {
    const Index c = h * channels;
    const ConstHead<Scalar, C> v_h(v + c, channels), G_h(G + c, channels), w_h(w + c, channels);
    const Scalar p = G_h.dot(v_h);
    const Scalar e = a[h] * (p - delta[h]);
    Head<Scalar, C>(dv + c, channels) += a[h] * G_h;
    Head<Scalar, C>(u + c, channels) += e * w_h;
    Head<Scalar, C>(dw + c, channels) += (e * r) * v_h;
  }
}

std::vector<Index> widths(Index count, Index width, bool first_is_empty) {
  std::vector<Index> list(std::size_t(count), width);
  if (first_is_empty) list[0] = 0;
  return list;
}

std::vector<Index> weight_widths(const DepthPlan& plan, Index heads) {
  std::vector<Index> list;
  for (const auto& sources : plan.sources) list.push_back(Index(sources.size()) * heads);
  return list;
}

}  // namespace

template <class Scalar>
SourceBank<Scalar>::SourceBank(Index tokens, const DepthPlan& plan, Index channels)
    : sources(tokens, widths(plan.sublayers + 1, channels, false)),
      rstd(std::size_t(plan.sublayers) + 1, Vector<Scalar>(tokens)) {}

template <class Scalar>
RoutingState<Scalar>::RoutingState(Index tokens, const DepthPlan& plan, Index channels,
                                   Index depth_heads)
    : heads(depth_heads),
      folded(std::size_t(plan.sites()) + 1, Vector<Scalar>::Zero(channels)),
      weights(tokens, weight_widths(plan, heads)),
      gradients(tokens, widths(plan.sites() + 1, channels, true)),
      delta(tokens, widths(plan.sites() + 1, heads, true)) {}

template <class Scalar>
Index RoutingState<Scalar>::size() const {
  return Index(folded.size()) * folded[0].size() + weights.size() + gradients.size() + delta.size();
}

template <class Scalar>
void depth_attention_forward(const SourceBank<Scalar>& bank, const DepthPlan& plan, Index site,
                             RoutingState<Scalar>& state, MatrixOut<Scalar> output) {
  const Index channels = output.cols() / state.heads;
  with_head_size(channels, [&](auto C) {
    for_each_tile(output.rows(), kDepthTile, [&](Index first, Index count) {
      for (Index n = first; n < first + count; ++n)
        forward_token<Scalar, C>(bank, plan.sources[site], n, state.heads, channels,
                                 state.folded[site].data(), state.weights.row(site, n),
                                 output.row(n).data());
    });
  });
}

template <class Scalar>
void depth_attention_keep_gradient(MatrixIn<Scalar> output_gradient, MatrixIn<Scalar> output,
                                   Index site, RoutingState<Scalar>& state) {
  const Index D = output.cols(), channels = D / state.heads;
  for_each_tile(output.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      const auto G = output_gradient.row(n), o = output.row(n);
      VectorView<Scalar>(state.gradients.row(site, n), D) = G.transpose();
      for (Index h = 0; h < state.heads; ++h)
        state.delta.row(site, n)[h] =
            G.segment(h * channels, channels).dot(o.segment(h * channels, channels));
    }
  });
}

template <class Scalar>
void depth_attention_backward_gather(const SourceBank<Scalar>& bank, const DepthPlan& plan,
                                     Index source, const RoutingState<Scalar>& state,
                                     bool accumulate, MatrixOut<Scalar> dsource,
                                     GatherPartials<Scalar>& partials) {
  const Index D = dsource.cols(), channels = D / state.heads;
  with_head_size(channels, [&](auto C) {
    for_each_tile(dsource.rows(), kDepthTile, [&](Index first, Index count) {
      const Index tile = first / kDepthTile;
      VectorView<Scalar> u(partials.u.row(tile).data(), D);
      for (Index n = first; n < first + count; ++n) {
        const ConstVectorView<Scalar> v(bank.sources.row(source, n), D);
        VectorView<Scalar> dv(dsource.row(n).data(), D);
        const Scalar r = bank.rstd[source][n];
        if (!accumulate) dv.setZero();
        u.setZero();
        for (const auto& consumer : plan.consumers[source])
          gather_token<Scalar, C>(
              state, consumer, n, channels, r, v.data(), dv.data(), u.data(),
              partials.dfolded.row(tile * plan.sites() + consumer.site - 1).data());
        dv += r * u - (r * r * r / Scalar(D)) * u.dot(v) * v;
      }
    });
  });
}

template <class Scalar>
void sum_partials(const GatherPartials<Scalar>& partials, Index sites, Index site,
                  VectorOut<Scalar> dfolded) {
  dfolded.setZero();
  for (Index row = site - 1; row < partials.dfolded.rows(); row += sites)
    dfolded += partials.dfolded.row(row).transpose();
}

template <class Scalar>
void depth_attention_backward_scatter(const SourceBank<Scalar>& bank, const DepthPlan& plan,
                                      Index site, const RoutingState<Scalar>& state,
                                      std::span<Matrix<Scalar>> dsources,
                                      VectorOut<Scalar> dfolded) {
  const Index D = dfolded.size(), H = state.heads, C = D / H;
  const auto& sources = plan.sources[site];
  for (Index n = 0; n < bank.sources.tokens(); ++n) {
    const Vector<Scalar> G = state.gradients[site].row(n);
    for (Index k = 0; k < Index(sources.size()); ++k) {
      const Vector<Scalar> v = bank.sources[sources[k]].row(n);
      const Scalar r = bank.rstd[sources[k]][n];
      auto dv = dsources[sources[k]].row(n).transpose();
      Scalar sum_e_s = 0;
      for (Index h = 0; h < H; ++h) {
        const auto G_h = G.segment(h * C, C), v_h = v.segment(h * C, C);
        const auto w_h = state.folded[site].segment(h * C, C);
        const Scalar a = state.weights[site](n, k * H + h);
        const Scalar s = r * w_h.dot(v_h);
        const Scalar p = G_h.dot(v_h);
        const Scalar e = a * (p - state.delta[site](n, h));
        sum_e_s += e * s;
        dv.segment(h * C, C) += a * G_h + r * e * w_h;
        dfolded.segment(h * C, C) += e * r * v_h;
      }
      dv -= r * r / Scalar(D) * sum_e_s * v;
    }
  }
}

#define INSTANTIATE(S)                                                                             \
  template struct SourceBank<S>;                                                                   \
  template struct RoutingState<S>;                                                                 \
  template void depth_attention_forward<S>(const SourceBank<S>&, const DepthPlan&, Index,          \
                                           RoutingState<S>&, MatrixOut<S>);                        \
  template void depth_attention_keep_gradient<S>(MatrixIn<S>, MatrixIn<S>, Index,                  \
                                                 RoutingState<S>&);                                \
  template void depth_attention_backward_gather<S>(const SourceBank<S>&, const DepthPlan&, Index,  \
                                                   const RoutingState<S>&, bool, MatrixOut<S>,     \
                                                   GatherPartials<S>&);                            \
  template void sum_partials<S>(const GatherPartials<S>&, Index, Index, VectorOut<S>);             \
  template void depth_attention_backward_scatter<S>(const SourceBank<S>&, const DepthPlan&, Index, \
                                                    const RoutingState<S>&, std::span<Matrix<S>>,  \
                                                    VectorOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
