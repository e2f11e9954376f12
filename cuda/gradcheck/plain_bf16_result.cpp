// Depth attention op by op with every result rounded to bfloat16, in the order in which a
// straightforward PyTorch module would run it; sums inside one op are exact.  Written from math.md
// sections 1 and 2, independently of the reference and of the kernels.
#include "cuda/gradcheck/depth_case.h"
#include "reference/depth/plan.h"

namespace attnres {
namespace {

using M = Matrix<double>;
using V = Vector<double>;

M rounded(const M& x) {
  return x.unaryExpr([](double v) { return round_bf16(v); });
}

// One site of a module:  k_i = RMSNorm(v_i) ∘ g;  a = softmax_i <q, k_i>;  o = sum_i a_i v_i.
struct Site {
  Index heads;
  std::vector<M> normalised;  // v_i r_i
  std::vector<M> keys;        // [N, D]
  std::vector<M> a;           // [N, H]
};

M per_head_dot(const M& x, const M& y, Index heads) {
  const Index C = x.cols() / heads;
  M dots(x.rows(), heads);
  for (Index h = 0; h < heads; ++h)
    dots.col(h) = x.middleCols(h * C, C).cwiseProduct(y.middleCols(h * C, C)).rowwise().sum();
  return dots;
}

M spread(const M& per_head, Index channels) {
  const Index heads = per_head.cols(), C = channels / heads;
  M rows(per_head.rows(), channels);
  for (Index c = 0; c < channels; ++c) rows.col(c) = per_head.col(c / C);
  return rows;
}

V rstd_of(const M& v, double eps) {
  return (v.rowwise().squaredNorm().array() / double(v.cols()) + eps).rsqrt();
}

M forward(Site& site, const std::vector<const M*>& sources, const V& q, const V& g, double eps) {
  const Index N = sources[0]->rows(), D = sources[0]->cols();
  std::vector<M> s;
  M maximum = M::Constant(N, site.heads, -INFINITY), total = M::Zero(N, site.heads);
  for (const M* v : sources) {
    site.normalised.push_back(rounded(rstd_of(*v, eps).asDiagonal() * *v));
    site.keys.push_back(rounded(site.normalised.back() * g.asDiagonal()));
    s.push_back(rounded(per_head_dot(site.keys.back(), q.transpose().replicate(N, 1), site.heads)));
    maximum = maximum.cwiseMax(s.back());
  }
  for (const M& logits : s) total += (logits - maximum).array().exp().matrix();
  M o = M::Zero(N, D);
  for (std::size_t i = 0; i < s.size(); ++i) {
    site.a.push_back(rounded(((s[i] - maximum).array().exp() / total.array()).matrix()));
    o += spread(site.a[i], D).cwiseProduct(*sources[i]);
  }
  return rounded(o);
}

// Adds to dsources; returns dq and dg.
std::pair<V, V> backward(const Site& site, const std::vector<const M*>& sources,
                         const std::vector<M*>& dsources, const M& G, const V& q, const V& g,
                         double eps) {
  const Index D = G.cols(), N = G.rows();
  std::vector<M> da;
  M expected = M::Zero(N, site.heads);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    da.push_back(rounded(per_head_dot(G, *sources[i], site.heads)));
    expected += site.a[i].cwiseProduct(da[i]);
  }
  V dq = V::Zero(D), dg = V::Zero(D);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const M ds = rounded(site.a[i].cwiseProduct(da[i] - expected));
    const M spread_ds = spread(ds, D);
    dq += spread_ds.cwiseProduct(site.keys[i]).colwise().sum().transpose();
    const M dkey = rounded(spread_ds * q.asDiagonal());
    dg += dkey.cwiseProduct(site.normalised[i]).colwise().sum().transpose();
    const M dn = rounded(dkey * g.asDiagonal());
    const V r = rstd_of(*sources[i], eps);
    const V along =
        dn.cwiseProduct(*sources[i]).rowwise().sum().cwiseProduct(r.cwiseAbs2().cwiseProduct(r)) /
        double(D);
    const M through_key = rounded(r.asDiagonal() * dn - along.asDiagonal() * *sources[i]);
    const M through_value = rounded(spread(site.a[i], D).cwiseProduct(G));
    *dsources[i] = rounded(*dsources[i] + rounded(through_value + through_key));
  }
  return {rounded(dq.transpose()).transpose(), rounded(dg.transpose()).transpose()};
}

}  // namespace

DepthResult plain_bf16_result(const DepthCase& c, const DepthInputs& in) {
  const Index L = c.sublayers, N = c.tokens, D = c.channels;
  const bool routes = c.mixing.kind != DepthMixing::Kind::residual;
  const bool additive = c.mixing.kind != DepthMixing::Kind::attention;
  const DepthPlan plan = make_depth_plan(L, c.mixing);
  DepthResult out(c);

  std::vector<M> sources(L + 1), dsources(L + 1, M::Zero(N, D)), mixes(L + 2), stream(L + 2);
  std::vector<Site> sites(L + 2, Site{c.mixing.heads, {}, {}, {}});
  std::vector<V> norm_rstd(L + 2);
  const auto pointers = [&](std::vector<M>& list, Index l) {
    std::vector<M*> chosen;
    for (const Index i : plan.sources[l]) chosen.push_back(&list[i]);
    return chosen;
  };
  const auto read_only = [&](Index l) {
    const auto chosen = pointers(sources, l);
    return std::vector<const M*>(chosen.begin(), chosen.end());
  };
  const auto site_routes = [&](Index l) {
    return routes && (c.mixing.kind != DepthMixing::Kind::delta || l <= L);
  };

  M x = M::Zero(N, D);
  for (Index l = 0; l <= L + 1; ++l) {
    if (l >= 1) {
      if (site_routes(l)) {
        mixes[l] = forward(sites[l], read_only(l), in.queries[l], in.key_gains[l], c.eps);
        const Index S = Index(sites[l].a.size()), H = c.mixing.heads;
        out.weights[l].resize(N, S * H);
        for (Index k = 0; k < S; ++k) out.weights[l].middleCols(k * H, H) = sites[l].a[k];
      }
      if (!additive)
        out.inputs[l] = mixes[l];
      else if (site_routes(l))
        out.inputs[l] = rounded(x + rounded(in.gates[l] * mixes[l]));
      else
        out.inputs[l] = x;
      if (c.pre_norm) {
        norm_rstd[l] = rstd_of(out.inputs[l], c.eps);
        out.normed[l] = rounded(rounded(norm_rstd[l].asDiagonal() * out.inputs[l]) *
                                in.norm_gains[l].asDiagonal());
      }
    }
    if (l > L) break;
    sources[l] = plan.continues[l] ? rounded(sources[l - 1] + in.outputs[l]) : in.outputs[l];
    x = rounded(x + in.outputs[l]);
  }

  M dx = M::Zero(N, D);
  for (Index l = L + 1; l >= 0; --l) {
    if (l <= L) {
      const bool continued = l < L && plan.continues[l + 1];
      if (continued) dsources[l] = rounded(dsources[l] + dsources[l + 1]);
      out.doutputs[l] = additive ? rounded(dx + dsources[l]) : dsources[l];
    }
    if (l == 0) break;
    M G = in.dinputs[l];
    if (c.pre_norm) {
      const V r = norm_rstd[l];
      const M& o = out.inputs[l];
      const M normalised = rounded(r.asDiagonal() * o);
      out.dnorm_gains[l] = rounded(G.cwiseProduct(normalised).colwise().sum());
      const M g = rounded(G * in.norm_gains[l].asDiagonal());
      const V along =
          g.cwiseProduct(o).rowwise().sum().cwiseProduct(r.cwiseAbs2().cwiseProduct(r)) / double(D);
      G = rounded(r.asDiagonal() * g - along.asDiagonal() * o);
    }
    if (additive) dx = rounded(dx + G);
    if (!site_routes(l)) continue;
    if (additive) {
      out.dgates[l] = rounded(M::Constant(1, 1, G.cwiseProduct(mixes[l]).sum()));
      G = rounded(in.gates[l] * G);
    }
    const auto [dq, dg] = backward(sites[l], read_only(l), pointers(dsources, l), G, in.queries[l],
                                   in.key_gains[l], c.eps);
    out.dqueries[l] = dq.transpose();
    out.dkey_gains[l] = dg.transpose();
  }
  return out;
}

}  // namespace attnres
