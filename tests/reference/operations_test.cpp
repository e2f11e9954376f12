// Each operation against its definition, written out naively, and against its identities.
#include <cmath>

#include "reference/cross_entropy.h"
#include "reference/embedding.h"
#include "reference/linear.h"
#include "reference/rms_norm.h"
#include "reference/rotary.h"
#include "reference/sequence_attention.h"
#include "reference/swiglu.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

TEST_CASE("RMSNorm gives rows of unit mean square before the gain") {
  Random random(1);
  const M x = random.matrix(5, 37, 3);
  M y(5, 37);
  V rstd(5);
  rms_norm_forward<double>(x, V::Ones(37), 1e-12, y, rstd);
  for (Index n = 0; n < 5; ++n)
    CHECK(y.row(n).squaredNorm() / 37 == doctest::Approx(1).epsilon(1e-10));
  V alone(5);
  rms_norm_statistics<double>(x, 1e-12, alone);
  CHECK(same_bits(alone, rstd));
}

TEST_CASE("RMSNorm of a zero row is zero, and eps keeps its gradient finite") {
  const M x = M::Zero(1, 4), dy = M::Ones(1, 4);
  M y(1, 4), dx(1, 4);
  V rstd(1), dgain = V::Zero(4);
  rms_norm_forward<double>(x, V::Ones(4), 1e-6, y, rstd);
  rms_norm_backward<double>(dy, x, V::Ones(4), rstd, dx, dgain);
  CHECK(y.isZero(0));
  CHECK(dx.allFinite());
  CHECK(dx(0, 0) == doctest::Approx(1000));  // eps^(-1/2)
}

TEST_CASE("a linear layer is x W^T, in tiles and in one piece") {
  Random random(2);
  const M x = random.matrix(300, 11), W = random.matrix(45, 11), dy = random.matrix(300, 45);
  M y(300, 45), dx(300, 11), dW = M::Ones(45, 11);
  linear_forward<double>(x, W, y);
  linear_backward_input<double>(dy, W, dx);
  linear_backward_weight<double>(dy, x, dW);
  for (Index n : {0, 127, 128, 299})
    for (Index o : {0, 31, 32, 44}) {
      double sum = 0;
      for (Index i = 0; i < 11; ++i) sum += x(n, i) * W(o, i);
      CHECK(y(n, o) == doctest::Approx(sum).epsilon(1e-12));
    }
  CHECK(max_difference(dx, M(dy * W)) < 1e-11);
  CHECK(max_difference(dW, M(dy.transpose() * x + M::Ones(45, 11))) < 1e-11);
  linear_backward_input_add<double>(dy, W, dx);
  CHECK(max_difference(dx, M(2 * dy * W)) < 1e-11);
}

TEST_CASE("rotary embedding pairs channel c with c + d/2 and turns it by t theta^(-2c/d)") {
  Random random(3);
  const Index T = 9, d = 8;
  const auto table = make_rotary_table<double>(T, d, 500.0);
  const M x = random.matrix(2 * T, 2 * d);
  M y = x;
  rotary_forward<double>(y, T, table);
  const Index t = 5, n = T + t, head = d, c = 3;  // second sequence, second head
  const double angle = double(t) * std::pow(500.0, -2.0 * c / d);
  const double a = x(n, head + c), b = x(n, head + c + d / 2);
  CHECK(y(n, head + c) == doctest::Approx(a * std::cos(angle) - b * std::sin(angle)));
  CHECK(y(n, head + c + d / 2) == doctest::Approx(b * std::cos(angle) + a * std::sin(angle)));
  CHECK(same_bits(y.row(0), x.row(0)));  // position 0 is not turned
  rotary_backward<double>(y, T, table);
  CHECK(max_difference(x, y) < 1e-14);  // the transpose is the inverse
}

TEST_CASE("rotated products depend on the distance of positions alone") {
  Random random(4);
  const Index T = 12, d = 6;
  const auto table = make_rotary_table<double>(T, d, 10000.0);
  M q = random.matrix(1, d).replicate(T, 1), k = random.matrix(1, d).replicate(T, 1);
  rotary_forward<double>(q, T, table);
  rotary_forward<double>(k, T, table);
  for (Index t = 4; t < T; ++t)
    CHECK(q.row(t).dot(k.row(t - 4)) == doctest::Approx(q.row(4).dot(k.row(0))).epsilon(1e-12));
}

namespace {

// Softmax attention with the whole matrix of scores, one head at a time.
M naive_attention(const AttentionShape& s, const M& q, const M& k, const M& v) {
  M out(q.rows(), q.cols());
  for (Index b = 0; b < s.sequences; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index t = 0; t < s.positions; ++t) {
        const Index kv = h / (s.heads / s.kv_heads);
        const auto query = q.row(b * s.positions + t).segment(h * s.head_dim, s.head_dim);
        V p(t + 1);
        for (Index j = 0; j <= t; ++j)
          p[j] = query.dot(k.row(b * s.positions + j).segment(kv * s.head_dim, s.head_dim)) /
                 std::sqrt(double(s.head_dim));
        p = (p.array() - p.maxCoeff()).exp();
        p /= p.sum();
        auto o = out.row(b * s.positions + t).segment(h * s.head_dim, s.head_dim);
        o.setZero();
        for (Index j = 0; j <= t; ++j)
          o += p[j] * v.row(b * s.positions + j).segment(kv * s.head_dim, s.head_dim);
      }
  return out;
}

}  // namespace

TEST_CASE("attention in blocks with an online softmax is attention with the whole matrix") {
  Random random(5);
  for (const AttentionShape& shape :
       {AttentionShape{2, 1, 2, 1, 4}, AttentionShape{1, 64, 2, 2, 4},
        AttentionShape{2, 65, 4, 2, 6}, AttentionShape{1, 200, 3, 1, 10}}) {
    const Index N = shape.sequences * shape.positions;
    const M q = random.matrix(N, shape.heads * shape.head_dim, 3);
    const M k = random.matrix(N, shape.kv_heads * shape.head_dim, 3);
    const M v = random.matrix(N, shape.kv_heads * shape.head_dim);
    M context(N, q.cols()), lse(shape.heads, N);
    sequence_attention_forward<double>(shape, q, k, v, context, lse);
    CHECK(max_difference(context, naive_attention(shape, q, k, v)) < 1e-12);
  }
}

TEST_CASE("attention is causal: a later token changes no earlier output, not by one bit") {
  Random random(6);
  const AttentionShape shape{1, 100, 2, 1, 4};
  const M q = random.matrix(100, 8), v = random.matrix(100, 4);
  M k = random.matrix(100, 4), before(100, 8), after(100, 8), lse(2, 100);
  sequence_attention_forward<double>(shape, q, k, v, before, lse);
  k.row(70).setConstant(1e3);
  sequence_attention_forward<double>(shape, q, k, v, after, lse);
  CHECK(same_bits(before.topRows(70), after.topRows(70)));
  CHECK(max_difference(before.bottomRows(30), after.bottomRows(30)) > 1e-3);
}

TEST_CASE("SwiGLU is gate sigmoid(gate) up") {
  Random random(7);
  const M gate = random.matrix(4, 9, 4), up = random.matrix(4, 9);
  M hidden(4, 9);
  swiglu_forward<double>(gate, up, hidden);
  for (Index i = 0; i < gate.size(); ++i) {
    const double x = gate.data()[i];
    CHECK(hidden.data()[i] == doctest::Approx(x / (1 + std::exp(-x)) * up.data()[i]));
  }
}

TEST_CASE("SwiGLU stays finite where the exponential overflows") {
  Matrix<float> gate(1, 2), up = Matrix<float>::Ones(1, 2), hidden(1, 2), dgate(1, 2), dup(1, 2);
  gate << -500.0f, 500.0f;
  swiglu_forward<float>(gate, up, hidden);
  swiglu_backward<float>(up, gate, up, dgate, dup);
  CHECK(std::abs(hidden(0, 0)) < 1e-30f);
  CHECK(hidden(0, 1) == 500.0f);
  CHECK(dgate.allFinite());
  CHECK(dup.allFinite());
}

TEST_CASE("the embedding gradient sums the rows of repeated tokens") {
  const std::vector<std::int32_t> tokens = {2, 0, 2, 2};
  const M dx = M::NullaryExpr(4, 40, [](Index n, Index c) { return double(n * 100 + c); });
  M dtable = M::Zero(3, 40);
  embedding_backward<double>(tokens, dx, dtable);
  CHECK(same_bits(dtable.row(2), (dx.row(0) + dx.row(2) + dx.row(3)).eval()));
  CHECK(same_bits(dtable.row(0), dx.row(1)));
  CHECK(dtable.row(1).isZero(0));
}

TEST_CASE("cross-entropy in chunks is -log softmax of the target") {
  Random random(8);
  const Index N = 11, D = 5, vocabulary = 9;
  const M hidden = random.matrix(N, D, 3), head = random.matrix(vocabulary, D, 3);
  const auto targets = random.tokens(N, vocabulary);
  const M z = hidden * head.transpose();
  for (const Index chunk : {1, 4, 11}) {
    M logits(chunk, vocabulary), dhidden(N, D), dhead = M::Zero(vocabulary, D);
    V loss(N), again(N);
    cross_entropy_forward<double>(hidden, head, targets, logits, loss);
    for (Index n = 0; n < N; ++n)
      CHECK(loss[n] == doctest::Approx(std::log(z.row(n).array().exp().sum()) - z(n, targets[n])));
    cross_entropy_forward_backward<double>(hidden, head, targets, 1.0, logits, again, dhidden,
                                           dhead);
    CHECK(same_bits(loss, again));
  }
}

TEST_CASE("an ignored target has no loss and no gradient") {
  Random random(9);
  const M hidden = random.matrix(3, 4), head = random.matrix(5, 4);
  const std::vector<std::int32_t> targets = {kIgnoredTarget, 2, kIgnoredTarget};
  M logits(3, 5), dhidden(3, 4), dhead = M::Zero(5, 4);
  V loss(3);
  cross_entropy_forward_backward<double>(hidden, head, targets, 1.0, logits, loss, dhidden, dhead);
  CHECK(loss[0] == 0);
  CHECK(loss[2] == 0);
  CHECK(dhidden.row(0).isZero(0));
  CHECK(dhidden.row(2).isZero(0));
  CHECK(!dhidden.row(1).isZero(1e-6));
}
