#include "reference/swiglu.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
void swiglu_forward(MatrixIn<Scalar> gate, MatrixIn<Scalar> up, MatrixOut<Scalar> hidden) {
  for_each_tile(gate.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      const auto x = gate.row(n).array();
      hidden.row(n).array() = x / (Scalar(1) + (-x).exp()) * up.row(n).array();
    }
  });
}

template <class Scalar>
void swiglu_backward(MatrixIn<Scalar> dhidden, MatrixIn<Scalar> gate, MatrixIn<Scalar> up,
                     MatrixOut<Scalar> dgate, MatrixOut<Scalar> dup) {
  for_each_tile(gate.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      const auto x = gate.row(n).array();
      const auto dh = dhidden.row(n).array();
      auto sigma = dgate.row(n).array();  // σ lives where its gradient will
      sigma = (Scalar(1) + (-x).exp()).inverse();
      dup.row(n).array() = dh * x * sigma;
      dgate.row(n).array() = dh * up.row(n).array() * sigma * (Scalar(1) + x * (Scalar(1) - sigma));
    }
  });
}

#define INSTANTIATE(S)                                                                  \
  template void swiglu_forward<S>(MatrixIn<S>, MatrixIn<S>, MatrixOut<S>);              \
  template void swiglu_backward<S>(MatrixIn<S>, MatrixIn<S>, MatrixIn<S>, MatrixOut<S>, \
                                   MatrixOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
