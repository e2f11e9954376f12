#include "reference/depth/delta_gate.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
void delta_gate_forward(MatrixIn<Scalar> x, MatrixIn<Scalar> o, Scalar gate,
                        MatrixOut<Scalar> input) {
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    input.middleRows(first, count) = x.middleRows(first, count) + gate * o.middleRows(first, count);
  });
}

template <class Scalar>
Scalar delta_gate_backward(MatrixIn<Scalar> dinput, MatrixIn<Scalar> o, Scalar gate,
                           MatrixOut<Scalar> doutput, VectorOut<Scalar> row_sums) {
  for_each_tile(o.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      row_sums[n] = dinput.row(n).dot(o.row(n));
      doutput.row(n) = gate * dinput.row(n);
    }
  });
  return row_sums.sum();
}

#define INSTANTIATE(S)                                                            \
  template void delta_gate_forward<S>(MatrixIn<S>, MatrixIn<S>, S, MatrixOut<S>); \
  template S delta_gate_backward<S>(MatrixIn<S>, MatrixIn<S>, S, MatrixOut<S>, VectorOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
