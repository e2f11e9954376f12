#include "reference/sequence_attention.h"

#include <cmath>
#include <limits>

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {
namespace {

// Queries and keys that meet in one tile of scores.  Few queries waste little of the triangle that
// causality masks; many keys make long products and few corrections of the running softmax.
constexpr Index kQueries = 64, kKeys = 256;

// A tile of scores on the stack: no allocation, and it stays in the second-level cache.
template <class Scalar>
using Tile =
    Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor, kQueries, kKeys>;
template <class Scalar>
using TileVector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1, 0, kQueries, 1>;

// How many keys of the block that starts at `key` the query at position `query` may see.
Index visible_keys(Index query, Index key, Index keys) {
  return std::clamp<Index>(query - key + 1, 0, keys);
}

// Folds one tile of scores into the running softmax of its queries: max m, sum z, mix o.
template <class Scalar>
void online_softmax(Index query, Index key, Tile<Scalar>& s, TileVector<Scalar>& m,
                    TileVector<Scalar>& z, MatrixOut<Scalar> o) {
  for (Index i = 0; i < s.rows(); ++i) {
    const Index seen = visible_keys(query + i, key, s.cols());
    auto row = s.row(i).head(seen).array();
    const Scalar max = std::max(m[i], row.maxCoeff());
    const Scalar correction = std::exp(m[i] - max);
    row = (row - max).exp();
    s.row(i).tail(s.cols() - seen).setZero();
    z[i] = z[i] * correction + row.sum();
    o.row(i) *= correction;
    m[i] = max;
  }
}

// p[t,j] = exp(s[t,j] - lse[t]) for visible pairs, 0 elsewhere, in place of the scores.
template <class Scalar>
void probabilities(Index query, Index key, const TileVector<Scalar>& lse, Tile<Scalar>& s) {
  for (Index i = 0; i < s.rows(); ++i) {
    const Index seen = visible_keys(query + i, key, s.cols());
    s.row(i).head(seen).array() = (s.row(i).head(seen).array() - lse[i]).exp();
    s.row(i).tail(s.cols() - seen).setZero();
  }
}

template <class Scalar>
void forward_head(Index positions, Scalar scale, MatrixIn<Scalar> q, MatrixIn<Scalar> k,
                  MatrixIn<Scalar> v, MatrixOut<Scalar> o, VectorOut<Scalar> lse) {
  for (Index query = 0; query < positions; query += kQueries) {
    const Index queries = std::min(kQueries, positions - query);
    TileVector<Scalar> m(queries), z(queries);
    m.setConstant(-std::numeric_limits<Scalar>::infinity());
    z.setZero();
    auto mix = o.middleRows(query, queries);
    mix.setZero();
    for (Index key = 0; key < query + queries; key += kKeys) {
      const Index keys = std::min(kKeys, query + queries - key);
      Tile<Scalar> s(queries, keys);
      s.noalias() = scale * q.middleRows(query, queries) * k.middleRows(key, keys).transpose();
      online_softmax<Scalar>(query, key, s, m, z, mix);
      mix.noalias() += s * v.middleRows(key, keys);
    }
    for (Index i = 0; i < queries; ++i) mix.row(i) /= z[i];
    lse.segment(query, queries) = m.array() + z.array().log();
  }
}

// Adds to dq, dk, dv, which several query heads share for one key-value head.
template <class Scalar>
void backward_head(Index positions, Scalar scale, MatrixIn<Scalar> dcontext, MatrixIn<Scalar> q,
                   MatrixIn<Scalar> k, MatrixIn<Scalar> v, MatrixIn<Scalar> context,
                   VectorIn<Scalar> log_sum_exp, MatrixOut<Scalar> dq, MatrixOut<Scalar> dk,
                   MatrixOut<Scalar> dv) {
  for (Index query = 0; query < positions; query += kQueries) {
    const Index queries = std::min(kQueries, positions - query);
    const auto g = dcontext.middleRows(query, queries);
    const auto q_tile = q.middleRows(query, queries);
    TileVector<Scalar> delta(queries), lse(queries);
    for (Index i = 0; i < queries; ++i) delta[i] = g.row(i).dot(context.row(query + i));
    lse = log_sum_exp.segment(query, queries);
    for (Index key = 0; key < query + queries; key += kKeys) {
      const Index keys = std::min(kKeys, query + queries - key);
      const auto k_tile = k.middleRows(key, keys);
      Tile<Scalar> p(queries, keys), ds(queries, keys);
      p.noalias() = scale * q_tile * k_tile.transpose();
      probabilities<Scalar>(query, key, lse, p);
      dv.middleRows(key, keys).noalias() += p.transpose() * g;
      ds.noalias() = g * v.middleRows(key, keys).transpose();
      for (Index i = 0; i < queries; ++i)
        ds.row(i).array() = scale * p.row(i).array() * (ds.row(i).array() - delta[i]);
      dq.middleRows(query, queries).noalias() += ds * k_tile;
      dk.middleRows(key, keys).noalias() += ds.transpose() * q_tile;
    }
  }
}

// One (sequence, head): which rows and columns of the [B*T, heads*d] arrays belong to it.
struct HeadSlice {
  Index row, rows, column, columns;
  auto of(auto&& matrix) const { return matrix.block(row, column, rows, columns); }
};

HeadSlice slice(const AttentionShape& shape, Index sequence, Index head) {
  return {sequence * shape.positions, shape.positions, head * shape.head_dim, shape.head_dim};
}

}  // namespace

template <class Scalar>
void sequence_attention_forward(const AttentionShape& shape, MatrixIn<Scalar> query,
                                MatrixIn<Scalar> key, MatrixIn<Scalar> value,
                                MatrixOut<Scalar> context, MatrixOut<Scalar> log_sum_exp) {
  const Scalar scale = Scalar(1) / std::sqrt(Scalar(shape.head_dim));
  const Index group = shape.heads / shape.kv_heads;
  for_each_tile(shape.sequences * shape.heads, 1, [&](Index item, Index) {
    const Index sequence = item / shape.heads, head = item % shape.heads;
    const HeadSlice q = slice(shape, sequence, head), kv = slice(shape, sequence, head / group);
    forward_head<Scalar>(shape.positions, scale, q.of(query), kv.of(key), kv.of(value),
                         q.of(context), log_sum_exp.row(head).segment(q.row, q.rows).transpose());
  });
}

template <class Scalar>
void sequence_attention_backward(const AttentionShape& shape, MatrixIn<Scalar> dcontext,
                                 MatrixIn<Scalar> query, MatrixIn<Scalar> key,
                                 MatrixIn<Scalar> value, MatrixIn<Scalar> context,
                                 MatrixIn<Scalar> log_sum_exp, MatrixOut<Scalar> dquery,
                                 MatrixOut<Scalar> dkey, MatrixOut<Scalar> dvalue) {
  const Scalar scale = Scalar(1) / std::sqrt(Scalar(shape.head_dim));
  const Index group = shape.heads / shape.kv_heads;
  for_each_tile(shape.sequences * shape.kv_heads, 1, [&](Index item, Index) {
    const Index sequence = item / shape.kv_heads, kv_head = item % shape.kv_heads;
    const HeadSlice kv = slice(shape, sequence, kv_head);
    kv.of(dkey).setZero();
    kv.of(dvalue).setZero();
    for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const HeadSlice q = slice(shape, sequence, head);
      q.of(dquery).setZero();
      backward_head<Scalar>(shape.positions, scale, q.of(dcontext), q.of(query), kv.of(key),
                            kv.of(value), q.of(context),
                            log_sum_exp.row(head).segment(q.row, q.rows).transpose(), q.of(dquery),
                            kv.of(dkey), kv.of(dvalue));
    }
  });
}

#define INSTANTIATE(S)                                                                             \
  template void sequence_attention_forward<S>(const AttentionShape&, MatrixIn<S>, MatrixIn<S>,     \
                                              MatrixIn<S>, MatrixOut<S>, MatrixOut<S>);            \
  template void sequence_attention_backward<S>(const AttentionShape&, MatrixIn<S>, MatrixIn<S>,    \
                                               MatrixIn<S>, MatrixIn<S>, MatrixIn<S>, MatrixIn<S>, \
                                               MatrixOut<S>, MatrixOut<S>, MatrixOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
