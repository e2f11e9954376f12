// Every operation of the reference against finite differences: the loss is <G, y> for a fixed
// random G, so the gradient of each input is its backward pass applied to G.
#include <random>

#include "reference/cross_entropy.h"
#include "reference/depth/delta_gate.h"
#include "reference/depth/grouped.h"
#include "reference/embedding.h"
#include "reference/gradcheck.h"
#include "reference/linear.h"
#include "reference/rms_norm.h"
#include "reference/rotary.h"
#include "reference/sequence_attention.h"
#include "reference/swiglu.h"

namespace attnres {
namespace {

using M = Matrix<double>;
using V = Vector<double>;
using Results = std::vector<GradcheckResult>;

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  M matrix(Index rows, Index columns, double deviation = 1) {
    return M::NullaryExpr(rows, columns, [&] { return deviation * normal_(engine_); });
  }
  V vector(Index size, double deviation = 1) {
    return V::NullaryExpr(size, [&] { return deviation * normal_(engine_); });
  }
  V gains(Index size) {
    return V::NullaryExpr(size, [&] { return 0.8 + 0.4 * uniform_(engine_); });
  }
  std::vector<std::int32_t> tokens(Index count, Index vocabulary) {
    std::vector<std::int32_t> ids(std::size_t(count), 0);
    for (auto& id : ids) id = std::int32_t(engine_() % std::uint64_t(vocabulary));
    return ids;
  }

 private:
  std::mt19937_64 engine_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

template <class Array>
GradcheckTensor tensor(const char* name, Array& values, const Array& gradient) {
  return {name, values.data(), gradient.data(), values.size()};
}

void append(Results& results, Results more) {
  results.insert(results.end(), more.begin(), more.end());
}

double inner(const M& a, const M& b) { return a.cwiseProduct(b).sum(); }

Results check_rms_norm(const GradcheckOptions& options) {
  Random random(1);
  M x = random.matrix(3, 7), G = random.matrix(3, 7), y(3, 7), dx(3, 7);
  V gain = random.gains(7), rstd(3), dgain = V::Zero(7);
  const auto loss = [&] {
    rms_norm_forward<double>(x, gain, 1e-6, y, rstd);
    return inner(G, y);
  };
  loss();
  rms_norm_backward<double>(G, x, gain, rstd, dx, dgain);
  return gradcheck("rms_norm", loss, {tensor("x", x, dx), tensor("gain", gain, dgain)}, options);
}

Results check_linear(const GradcheckOptions& options) {
  Random random(2);
  M x = random.matrix(5, 4), W = random.matrix(3, 4), G = random.matrix(5, 3), y(5, 3);
  M dx(5, 4), dW = M::Zero(3, 4);
  const auto loss = [&] {
    linear_forward<double>(x, W, y);
    return inner(G, y);
  };
  linear_backward_input<double>(G, W, dx);
  linear_backward_weight<double>(G, x, dW);
  return gradcheck("linear", loss, {tensor("x", x, dx), tensor("weight", W, dW)}, options);
}

Results check_rotary(const GradcheckOptions& options) {
  Random random(3);
  const Index T = 5;
  const auto table = make_rotary_table<double>(T, 6, 10000.0);
  M x = random.matrix(2 * T, 12), G = random.matrix(2 * T, 12), dx = G;
  const auto loss = [&] {
    M y = x;
    rotary_forward<double>(y, T, table);
    return inner(G, y);
  };
  rotary_backward<double>(dx, T, table);
  return gradcheck("rotary", loss, {tensor("x", x, dx)}, options);
}

Results check_sequence_attention(const std::string& subject, const AttentionShape& shape,
                                 const GradcheckOptions& options) {
  Random random(4);
  const Index N = shape.sequences * shape.positions;
  const Index q_width = shape.heads * shape.head_dim, kv_width = shape.kv_heads * shape.head_dim;
  M q = random.matrix(N, q_width), k = random.matrix(N, kv_width), v = random.matrix(N, kv_width);
  M G = random.matrix(N, q_width), context(N, q_width), lse(shape.heads, N);
  M dq(N, q_width), dk(N, kv_width), dv(N, kv_width);
  const auto loss = [&] {
    sequence_attention_forward<double>(shape, q, k, v, context, lse);
    return inner(G, context);
  };
  loss();
  sequence_attention_backward<double>(shape, G, q, k, v, context, lse, dq, dk, dv);
  return gradcheck(subject, loss,
                   {tensor("query", q, dq), tensor("key", k, dk), tensor("value", v, dv)}, options);
}

Results check_swiglu(const GradcheckOptions& options) {
  Random random(5);
  M gate = random.matrix(3, 5, 2), up = random.matrix(3, 5), G = random.matrix(3, 5), hidden(3, 5);
  M dgate(3, 5), dup(3, 5);
  const auto loss = [&] {
    swiglu_forward<double>(gate, up, hidden);
    return inner(G, hidden);
  };
  swiglu_backward<double>(G, gate, up, dgate, dup);
  return gradcheck("swiglu", loss, {tensor("gate", gate, dgate), tensor("up", up, dup)}, options);
}

Results check_embedding(const GradcheckOptions& options) {
  Random random(6);
  const auto tokens = random.tokens(9, 4);  // more tokens than rows: some must share one
  M table = random.matrix(4, 3), G = random.matrix(9, 3), x(9, 3), dtable = M::Zero(4, 3);
  const auto loss = [&] {
    embedding_forward<double>(tokens, table, x);
    return inner(G, x);
  };
  embedding_backward<double>(tokens, G, dtable);
  return gradcheck("embedding", loss, {tensor("table", table, dtable)}, options);
}

Results check_cross_entropy(const GradcheckOptions& options) {
  Random random(7);
  const Index N = 7, D = 4, vocabulary = 6, chunk = 3;  // two full chunks and a rest
  auto targets = random.tokens(N, vocabulary);
  targets[2] = kIgnoredTarget;
  M hidden = random.matrix(N, D), head = random.matrix(vocabulary, D), logits(chunk, vocabulary);
  M dhidden(N, D), dhead = M::Zero(vocabulary, D);
  V losses(N);
  const double scale = 0.25;
  const auto loss = [&] {
    cross_entropy_forward<double>(hidden, head, targets, logits, losses);
    return scale * losses.sum();
  };
  cross_entropy_forward_backward<double>(hidden, head, targets, scale, logits, losses, dhidden,
                                         dhead);
  return gradcheck("cross_entropy", loss,
                   {tensor("hidden", hidden, dhidden), tensor("head", head, dhead)}, options);
}

// One site that reads a bank of sources of different scales.
struct DepthCase {
  DepthCase(Index tokens, Index source_count, Index channels, Index depth_heads)
      : N(tokens),
        D(channels),
        plan(one_site_plan(source_count)),
        site(plan.sites()),
        bank(N, plan, D),
        state(N, plan, D, depth_heads) {
    Random random(8);
    for (Index i = 0; i < source_count; ++i) {
      sources.push_back(random.matrix(N, D, std::pow(3.0, double(i % 5) - 2)));
      dsources.push_back(M::Zero(N, D));
    }
    q = random.vector(D, std::sqrt(4 / std::sqrt(double(D))));
    g = random.gains(D);
    G = random.matrix(N, D);
    output.resize(N, D);
  }

  // The readout alone reads: the earlier sites must not appear among the consumers.
  static DepthPlan one_site_plan(Index source_count) {
    DepthPlan plan = make_depth_plan(source_count - 1, {});
    for (auto& consumers : plan.consumers) consumers = {consumers.back()};
    return plan;
  }

  double loss() {
    state.folded[site] = q.cwiseProduct(g);
    for (Index i = 0; i <= plan.sublayers; ++i) {
      bank.sources[i] = sources[i];
      rms_norm_statistics<double>(sources[i], 1e-6, bank.rstd[i]);
    }
    depth_attention_forward<double>(bank, plan, site, state, output);
    return inner(G, output);
  }

  // In either form: dsources, and dw.
  V backward(bool gather) {
    loss();
    depth_attention_keep_gradient<double>(G, output, site, state);
    V dw = V::Zero(D);
    if (gather) {
      GatherPartials<double> partials(N, plan.sites(), D);
      partials.dfolded.setZero();
      for (Index i = 0; i <= plan.sublayers; ++i)
        depth_attention_backward_gather<double>(bank, plan, i, state, false, dsources[i], partials);
      sum_partials<double>(partials, plan.sites(), site, dw);
    } else {
      depth_attention_backward_scatter<double>(bank, plan, site, state, dsources, dw);
    }
    return dw;
  }

  Index N, D;
  DepthPlan plan;
  Index site;
  SourceBank<double> bank;
  RoutingState<double> state;
  V q, g;
  M G, output;
  std::vector<M> sources, dsources;
};

Results check_depth_attention(const std::string& subject, Index N, Index S, Index D, Index H,
                              bool gather, const GradcheckOptions& options) {
  DepthCase c(N, S, D, H);
  const V dw = c.backward(gather);
  const V dq = dw.cwiseProduct(c.g), dg = dw.cwiseProduct(c.q);
  std::vector<GradcheckTensor> tensors = {tensor("query", c.q, dq), tensor("key_gain", c.g, dg)};
  for (Index i = 0; i < S; ++i)
    tensors.push_back(
        {"source " + std::to_string(i), c.sources[i].data(), c.dsources[i].data(), N * D});
  return gradcheck(
      subject, [&] { return c.loss(); }, tensors, options);
}

Results check_delta_gate(const GradcheckOptions& options) {
  Random random(9);
  M x = random.matrix(3, 4), o = random.matrix(3, 4), G = random.matrix(3, 4), input(3, 4);
  M doutput(3, 4);
  V gate = V::Constant(1, 0.7), dgate(1), row_sums(3);
  const auto loss = [&] {
    delta_gate_forward<double>(x, o, gate[0], input);
    return inner(G, input);
  };
  dgate[0] = delta_gate_backward<double>(G, o, gate[0], doutput, row_sums);
  return gradcheck("delta_gate", loss,
                   {tensor("x", x, G), tensor("o", o, doutput), tensor("gate", gate, dgate)},
                   options);
}

}  // namespace

std::vector<GradcheckResult> gradcheck_operations(const GradcheckOptions& options) {
  Results results;
  append(results, check_rms_norm(options));
  append(results, check_linear(options));
  append(results, check_rotary(options));
  append(results, check_sequence_attention("sequence_attention", {2, 7, 4, 2, 6}, options));
  append(results,
         check_sequence_attention("sequence_attention, blocks", {1, 70, 1, 1, 2}, options));
  append(results, check_swiglu(options));
  append(results, check_embedding(options));
  append(results, check_cross_entropy(options));
  append(results, check_depth_attention("depth_attention, gather, H 1", 3, 4, 6, 1, true, options));
  append(results, check_depth_attention("depth_attention, gather, H 3", 3, 4, 6, 3, true, options));
  append(results,
         check_depth_attention("depth_attention, scatter, H 1", 3, 4, 6, 1, false, options));
  append(results,
         check_depth_attention("depth_attention, scatter, H 3", 3, 4, 6, 3, false, options));
  append(results, check_depth_attention("depth_attention, one source", 2, 1, 4, 2, true, options));
  append(results, check_delta_gate(options));
  return results;
}

}  // namespace attnres
