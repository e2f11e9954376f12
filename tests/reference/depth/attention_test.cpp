// Depth attention against the equations of math.md section 1, written as dense matrices in an
// independent order, and against every identity that the equations imply.
#include "reference/depth/attention.h"

#include <cmath>

#include "reference/rms_norm.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

constexpr double kEps = 1e-6;

// One site that reads S sources: the readout of a plan with S - 1 sublayers.
struct Site {
  Site(Index tokens, Index source_count, Index channels, Index depth_heads, std::uint64_t seed)
      : N(tokens),
        S(source_count),
        D(channels),
        H(depth_heads),
        C(D / H),
        plan(make_depth_plan(S - 1, {.kind = DepthMixing::Kind::attention})),
        l(plan.sites()),
        bank(N, plan, D),
        state(N, plan, D, H),
        output(N, D) {
    for (auto& consumers : plan.consumers) consumers = {consumers.back()};
    Random random(seed);
    for (Index i = 0; i < S; ++i) sources.push_back(random.matrix(N, D, std::pow(2.0, i % 7 - 3)));
    w = random.vector(D, std::sqrt(4 / std::sqrt(double(D))));
    G = random.matrix(N, D);
  }

  void forward() {
    state.folded[l] = w;
    for (Index i = 0; i < S; ++i) {
      bank.sources[i] = sources[i];
      rms_norm_statistics<double>(sources[i], kEps, bank.rstd[i]);
    }
    depth_attention_forward<double>(bank, plan, l, state, output);
  }

  // dw; dsources through the gather form.
  V gather() {
    forward();
    depth_attention_keep_gradient<double>(G, output, l, state);
    GatherPartials<double> partials(N, plan.sites(), D);
    partials.dfolded.setZero();
    dsources.assign(S, M(N, D));
    for (Index i = 0; i < S; ++i)
      depth_attention_backward_gather<double>(bank, plan, i, state, false, dsources[i], partials);
    V dw(D);
    sum_partials<double>(partials, plan.sites(), l, dw);
    return dw;
  }

  V scatter() {
    forward();
    depth_attention_keep_gradient<double>(G, output, l, state);
    dsources.assign(S, M::Zero(N, D));
    V dw = V::Zero(D);
    depth_attention_backward_scatter<double>(bank, plan, l, state, dsources, dw);
    return dw;
  }

  // Weight of source k for token n and head h.
  double weight(Index k, Index n, Index h) const { return state.weights[l](n, k * H + h); }

  Index N, S, D, H, C;
  DepthPlan plan;
  Index l;
  SourceBank<double> bank;
  RoutingState<double> state;
  std::vector<M> sources, dsources;
  V w;
  M G, output;
};

// The equations for one token and head, as a matrix K of normalised keys: s = K w_h, a =
// softmax(s), o_h = V_h^T a.  Returns a and o_h.
struct Dense {
  V a, o;
};
Dense dense(const Site& site, Index n, Index h) {
  M keys(site.S, site.C), values(site.S, site.C);
  for (Index i = 0; i < site.S; ++i) {
    const auto v = site.sources[i].row(n);
    const double rms = std::sqrt(v.array().square().mean() + kEps);
    values.row(i) = v.segment(h * site.C, site.C);
    keys.row(i) = values.row(i) / rms;
  }
  const V s = keys * site.w.segment(h * site.C, site.C);
  V a = (s.array() - s.maxCoeff()).exp();
  a /= a.sum();
  return {a, values.transpose() * a};
}

void check_against_dense(Site& site) {
  site.forward();
  for (Index n = 0; n < site.N; ++n)
    for (Index h = 0; h < site.H; ++h) {
      const Dense expected = dense(site, n, h);
      for (Index k = 0; k < site.S; ++k)
        REQUIRE(site.weight(k, n, h) == doctest::Approx(expected.a[k]).epsilon(1e-11));
      REQUIRE(max_difference(V(site.output.row(n).segment(h * site.C, site.C).transpose()),
                             expected.o) < 1e-11 * 16);
    }
}

}  // namespace

TEST_CASE("the forward pass is the dense softmax of the equations, for every H, S and odd shape") {
  for (const Index H : {1, 2, 3, 4, 8}) {
    Site odd(5, 6, 24 * H / std::gcd(Index(24), H), H, 10 + std::uint64_t(H));
    check_against_dense(odd);
  }
  for (Index S = 1; S <= 73; ++S) {
    Site site(1, S, 10, 2, 100 + std::uint64_t(S));  // N = 1, D not a power of two
    check_against_dense(site);
  }
  for (const Index C : {16, 32, 64, 128}) {  // head sizes with unrolled loops
    Site site(3, 4, 2 * C, 2, 200 + std::uint64_t(C));
    check_against_dense(site);
  }
  Site many_tiles(3 * kDepthTile + 7, 3, 6, 3, 300);
  check_against_dense(many_tiles);
}

TEST_CASE("H = 1 is Attention Residuals: one weight per source and token") {
  Site site(4, 5, 12, 1, 1);
  site.forward();
  for (Index n = 0; n < 4; ++n) {
    V o = V::Zero(12);
    for (Index k = 0; k < 5; ++k) o += site.weight(k, n, 0) * site.sources[k].row(n).transpose();
    CHECK(max_difference(V(site.output.row(n).transpose()), o) < 1e-13);
  }
}

TEST_CASE("H heads with equal logits are H copies of one mix; the RMS runs over the full row") {
  Site one(3, 4, 8, 1, 2), two(3, 4, 8, 2, 2);
  for (auto& v : one.sources) v.rightCols(4) = v.leftCols(4);  // both heads hold the same channels
  two.sources = one.sources;
  one.w.tail(4).setZero();
  two.w = one.w;
  two.w.tail(4) = two.w.head(4);
  one.forward();
  two.forward();
  for (Index n = 0; n < 3; ++n)
    for (Index k = 0; k < 4; ++k) {
      CHECK(two.weight(k, n, 0) == doctest::Approx(one.weight(k, n, 0)).epsilon(1e-12));
      CHECK(two.weight(k, n, 1) == doctest::Approx(two.weight(k, n, 0)).epsilon(1e-12));
    }
}

TEST_CASE("weights sum to one and the output lies within the range of the sources") {
  Site site(6, 9, 12, 3, 3);
  site.forward();
  for (Index n = 0; n < site.N; ++n)
    for (Index c = 0; c < site.D; ++c) {
      double sum = 0, low = 1e300, high = -1e300;
      for (Index k = 0; k < site.S; ++k) {
        sum += site.weight(k, n, c / site.C);
        low = std::min(low, site.sources[k](n, c));
        high = std::max(high, site.sources[k](n, c));
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-14));
      CHECK(site.output(n, c) >= low - 1e-12);
      CHECK(site.output(n, c) <= high + 1e-12);
    }
}

TEST_CASE("a zero query gives the mean of the sources") {
  Site site(4, 5, 8, 2, 4);
  site.w.setZero();
  site.forward();
  M mean = M::Zero(4, 8);
  for (const auto& v : site.sources) mean += v / 5;
  CHECK(max_difference(site.output, mean) < 1e-13);
}

TEST_CASE("one source gives the identity and exactly zero gradient for the query") {
  Site site(70, 1, 8, 2, 5);
  const V dw = site.gather();
  CHECK(same_bits(site.output, site.sources[0]));
  CHECK(dw.isZero(0));
  CHECK(same_bits(site.dsources[0], site.G));
  CHECK(site.scatter().isZero(0));
}

TEST_CASE("permuting the sources permutes the weights") {
  Site site(3, 4, 8, 2, 6), permuted(3, 4, 8, 2, 6);
  const Index order[] = {2, 0, 3, 1};
  for (Index k = 0; k < 4; ++k) permuted.sources[k] = site.sources[order[k]];
  site.forward();
  permuted.forward();
  for (Index n = 0; n < 3; ++n)
    for (Index k = 0; k < 4; ++k)
      CHECK(permuted.weight(k, n, 1) ==
            doctest::Approx(site.weight(order[k], n, 1)).epsilon(1e-12));
  CHECK(max_difference(site.output, permuted.output) < 1e-13);
}

TEST_CASE("a duplicated source splits its weight") {
  Site site(3, 4, 8, 2, 7);
  site.sources[3] = site.sources[1];
  site.forward();
  Site without(3, 3, 8, 2, 7);
  std::copy_n(site.sources.begin(), 3, without.sources.begin());
  without.w = site.w;
  without.forward();
  for (Index n = 0; n < 3; ++n) {
    CHECK(site.weight(1, n, 0) == site.weight(3, n, 0));
    // exp(s_1) counts twice: odds of source 1 against source 0 double.
    const double odds = (site.weight(1, n, 0) + site.weight(3, n, 0)) / site.weight(0, n, 0);
    CHECK(odds == doctest::Approx(2 * without.weight(1, n, 0) / without.weight(0, n, 0)));
  }
}

TEST_CASE("scaling a source leaves its logit, eps aside") {
  Site site(3, 4, 8, 2, 8), scaled(3, 4, 8, 2, 8);
  scaled.sources[2] *= 1000;
  site.forward();
  scaled.forward();
  for (Index n = 0; n < 3; ++n)
    for (Index k = 0; k < 4; ++k)
      CHECK(scaled.weight(k, n, 0) == doctest::Approx(site.weight(k, n, 0)).epsilon(1e-4));
}

TEST_CASE("the delta identity: sum_i a_i p_i = <G, o> per head") {
  Site site(5, 6, 12, 3, 9);
  site.gather();
  for (Index n = 0; n < 5; ++n)
    for (Index h = 0; h < 3; ++h) {
      double sum = 0;
      for (Index k = 0; k < 6; ++k)
        sum += site.weight(k, n, h) *
               site.G.row(n).segment(4 * h, 4).dot(site.sources[k].row(n).segment(4 * h, 4));
      CHECK(site.state.delta[site.l](n, h) == doctest::Approx(sum).epsilon(1e-12));
    }
}

TEST_CASE("the gather form and the scatter form give the same gradients") {
  for (const Index H : {1, 2, 3, 4, 8})
    for (const Index S : {1, 2, 13, 73}) {
      Site site(kDepthTile + 3, S, 24, H, 20 + std::uint64_t(H));
      const V gathered = site.gather();
      const auto by_gather = site.dsources;
      const V scattered = site.scatter();
      CHECK(max_difference(gathered, scattered) < 1e-11 * gathered.cwiseAbs().maxCoeff() + 1e-13);
      for (Index i = 0; i < S; ++i) CHECK(max_difference(by_gather[i], site.dsources[i]) < 1e-12);
    }
}

TEST_CASE("a softmax of large logits does not overflow") {
  Site site(2, 3, 8, 1, 11);
  site.w *= 1e4;
  site.forward();
  CHECK(site.output.allFinite());
  CHECK(site.gather().allFinite());
}
