#include "reference/rotary.h"

#include <cmath>

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {
namespace {

// direction = +1 turns by the table's angles, -1 turns back.
template <class Scalar>
void rotate(MatrixOut<Scalar> x, Index positions, const RotaryTable<Scalar>& table,
            Scalar direction) {
  const Index half = table.cosine.cols();
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      const auto cosine = table.cosine.row(n % positions).array();
      const auto sine = table.sine.row(n % positions).array();
      for (Index head = 0; head < x.cols(); head += 2 * half) {
        auto x1 = x.row(n).segment(head, half).array();
        auto x2 = x.row(n).segment(head + half, half).array();
        for (Index c = 0; c < half; ++c) {
          const Scalar a = x1[c], b = x2[c], s = direction * sine[c];
          x1[c] = a * cosine[c] - b * s;
          x2[c] = b * cosine[c] + a * s;
        }
      }
    }
  });
}

}  // namespace

template <class Scalar>
RotaryTable<Scalar> make_rotary_table(Index positions, Index head_dim, double theta) {
  RotaryTable<Scalar> table{Matrix<Scalar>(positions, head_dim / 2),
                            Matrix<Scalar>(positions, head_dim / 2)};
  for (Index t = 0; t < positions; ++t)
    for (Index c = 0; c < head_dim / 2; ++c) {
      const double angle = double(t) * std::pow(theta, -2.0 * double(c) / double(head_dim));
      table.cosine(t, c) = Scalar(std::cos(angle));
      table.sine(t, c) = Scalar(std::sin(angle));
    }
  return table;
}

template <class Scalar>
void rotary_forward(MatrixOut<Scalar> x, Index positions, const RotaryTable<Scalar>& table) {
  rotate<Scalar>(x, positions, table, Scalar(1));
}

template <class Scalar>
void rotary_backward(MatrixOut<Scalar> dx, Index positions, const RotaryTable<Scalar>& table) {
  rotate<Scalar>(dx, positions, table, Scalar(-1));
}

#define INSTANTIATE(S)                                                         \
  template RotaryTable<S> make_rotary_table<S>(Index, Index, double);          \
  template void rotary_forward<S>(MatrixOut<S>, Index, const RotaryTable<S>&); \
  template void rotary_backward<S>(MatrixOut<S>, Index, const RotaryTable<S>&);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
