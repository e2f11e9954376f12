#include "reference/linear.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
void linear_forward(MatrixIn<Scalar> x, MatrixIn<Scalar> weight, MatrixOut<Scalar> y) {
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    y.middleRows(first, count).noalias() = x.middleRows(first, count) * weight.transpose();
  });
}

template <class Scalar>
void linear_backward_input(MatrixIn<Scalar> dy, MatrixIn<Scalar> weight, MatrixOut<Scalar> dx) {
  for_each_tile(dy.rows(), kTokenTile, [&](Index first, Index count) {
    dx.middleRows(first, count).noalias() = dy.middleRows(first, count) * weight;
  });
}

template <class Scalar>
void linear_backward_input_add(MatrixIn<Scalar> dy, MatrixIn<Scalar> weight, MatrixOut<Scalar> dx) {
  for_each_tile(dy.rows(), kTokenTile, [&](Index first, Index count) {
    dx.middleRows(first, count).noalias() += dy.middleRows(first, count) * weight;
  });
}

template <class Scalar>
void linear_backward_weight(MatrixIn<Scalar> dy, MatrixIn<Scalar> x, MatrixOut<Scalar> dweight) {
  // A product packs all of x for every tile of rows, so tiles are larger where there are many rows.
  const Index tile = dweight.rows() >= 4 * kChannelTile ? 2 * kChannelTile : kChannelTile;
  for_each_tile(dweight.rows(), tile, [&](Index first, Index count) {
    dweight.middleRows(first, count).noalias() += dy.middleCols(first, count).transpose() * x;
  });
}

#define INSTANTIATE(S)                                                                \
  template void linear_forward<S>(MatrixIn<S>, MatrixIn<S>, MatrixOut<S>);            \
  template void linear_backward_input<S>(MatrixIn<S>, MatrixIn<S>, MatrixOut<S>);     \
  template void linear_backward_input_add<S>(MatrixIn<S>, MatrixIn<S>, MatrixOut<S>); \
  template void linear_backward_weight<S>(MatrixIn<S>, MatrixIn<S>, MatrixOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
