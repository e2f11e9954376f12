// Depth attention at one site: softmax over sources, per token and per depth head.
// H = 1 is Attention Residuals, arXiv 2603.15031, equations 2-4; H > 1 is MHAR, arXiv 2607.27230.
// The backward pass comes in two forms: by site (scatter, the textbook form) and by source
// (gather).
#pragma once

#include <span>

#include "reference/depth/plan.h"
#include "reference/tensor.h"

namespace attnres {

/// Several matrices [N, width_i] of which one token's rows are read together: they lie side by
/// side in memory, so that all a token needs from every depth is one contiguous piece.
template <class Scalar>
class DepthBank {
 public:
  DepthBank() = default;
  DepthBank(Index tokens, const std::vector<Index>& widths) : first_{0} {
    for (const Index width : widths) first_.push_back(first_.back() + width);
    values_.resize(tokens, first_.back());
  }

  Index tokens() const { return values_.rows(); }
  Index size() const { return values_.size(); }
  Index width(Index i) const { return first_[i + 1] - first_[i]; }
  /// Matrix i as a view [N, width_i].
  auto operator[](Index i) { return values_.middleCols(first_[i], width(i)); }
  auto operator[](Index i) const { return values_.middleCols(first_[i], width(i)); }
  /// The row of token n in matrix i.
  Scalar* row(Index i, Index n) { return values_.row(n).data() + first_[i]; }
  const Scalar* row(Index i, Index n) const { return values_.row(n).data() + first_[i]; }

 private:
  Matrix<Scalar> values_;
  std::vector<Index> first_;  // column at which each matrix begins, and the end
};

/// The sources v_0..v_L, each written once, and 1 / RMS of every row.
template <class Scalar>
struct SourceBank {
  SourceBank(Index tokens, const DepthPlan& plan, Index channels);

  DepthBank<Scalar> sources;         ///< v_i [N, D]
  std::vector<Vector<Scalar>> rstd;  ///< r_i [N], over the full row also when H > 1
};

/// What the sites l = 1..L+1 of a plan keep for the backward pass; index 0 is empty.
template <class Scalar>
struct RoutingState {
  RoutingState(Index tokens, const DepthPlan& plan, Index channels, Index heads);
  Index size() const;  ///< values held

  Index heads;                         ///< H
  std::vector<Vector<Scalar>> folded;  ///< w_l = q_l ∘ g_l [D]
  DepthBank<Scalar> weights;           ///< a_l [N, S_l*H], column k*H + h: source k of the site
  DepthBank<Scalar> gradients;         ///< G_l = dLoss/do_l [N, D]
  DepthBank<Scalar> delta;             ///< delta_l[n,h] = <G_l, o_l> within head h [N, H]
};

/// Tokens whose rows of all sources stay in a core's cache while a tile is worked on.
inline constexpr Index kDepthTile = 64;

/// Sums that the gather form keeps per tile of tokens, so that threads share nothing.
template <class Scalar>
struct GatherPartials {
  Matrix<Scalar> dfolded;  ///< dw of site l in row tile * (L+1) + l - 1;  [tiles * (L+1), D]
  Matrix<Scalar> u;        ///< scratch for one token's u;  [tiles, D]

  GatherPartials() = default;
  GatherPartials(Index tokens, Index sites, Index channels)
      : dfolded((tokens + kDepthTile - 1) / kDepthTile * sites, channels),
        u((tokens + kDepthTile - 1) / kDepthTile, channels) {}
};

/// For the sources i of site l, at positions k = 0..S-1 of its list, with r_i from the bank:
///   s_k[n,h] = r_i[n] sum_{c in head h} w[c] v_i[n,c];    a = softmax over k
///   o[n,c]   = sum_k a_k[n,h(c)] v_i[n,c]
/// Reads state.folded[l]; overwrites state.weights[l] and output [N, D].
template <class Scalar>
void depth_attention_forward(const SourceBank<Scalar>& bank, const DepthPlan& plan, Index site,
                             RoutingState<Scalar>& state, MatrixOut<Scalar> output);

/// Keeps G = dLoss/do of a site, and
///   delta[n,h] = sum_{c in h} G[n,c] o[n,c],  which equals sum_i a_i p_i: no pass over the
///   sources.
template <class Scalar>
void depth_attention_keep_gradient(MatrixIn<Scalar> output_gradient, MatrixIn<Scalar> output,
                                   Index site, RoutingState<Scalar>& state);

/// The gather form, seen from source i, with consumers l in R^-1(i) and p_il = <G_l, v_i> per head:
///   e_il = a_il (p_il - delta_l);     u = sum_l e_il ∘ w_l
///   dv_i += sum_l a_il ∘ G_l  +  r_i u  -  (r_i^3 / D) <u, v_i> v_i
///   dw_l += sum_n e_il r_i v_i
/// The last term of dv_i is math.md's (r^2 / D) (sum_l sum_h e s) v_i, since
/// sum_l sum_h e_il s_il = r_i <u, v_i>: one product per source instead of one per pair.
/// dsource [N, D] is overwritten, or added to where `accumulate`; partials are added to.
template <class Scalar>
void depth_attention_backward_gather(const SourceBank<Scalar>& bank, const DepthPlan& plan,
                                     Index source, const RoutingState<Scalar>& state,
                                     bool accumulate, MatrixOut<Scalar> dsource,
                                     GatherPartials<Scalar>& partials);

/// dw of one site: the tiles' partial sums, added in order.   dfolded [D], overwritten.
template <class Scalar>
void sum_partials(const GatherPartials<Scalar>& partials, Index sites, Index site,
                  VectorOut<Scalar> dfolded);

/// The textbook form, seen from one site: adds to the gradient of every source that it read.
///   dv_i += a_i ∘ G + r_i e_i ∘ w - (r_i^2 / D) (sum_h e_i s_i) v_i;   dw += sum_n sum_i e_i r_i
///   v_i
/// Kept as the oracle of the gather form: it shares none of its loops.  dsources[i] [N, D].
template <class Scalar>
void depth_attention_backward_scatter(const SourceBank<Scalar>& bank, const DepthPlan& plan,
                                      Index site, const RoutingState<Scalar>& state,
                                      std::span<Matrix<Scalar>> dsources,
                                      VectorOut<Scalar> dfolded);

}  // namespace attnres
