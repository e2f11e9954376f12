#include "reference/rms_norm.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
void rms_norm_statistics(MatrixIn<Scalar> x, Scalar eps, VectorOut<Scalar> rstd) {
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n)
      rstd[n] = Scalar(1) / std::sqrt(x.row(n).squaredNorm() / Scalar(x.cols()) + eps);
  });
}

template <class Scalar>
void rms_norm_forward(MatrixIn<Scalar> x, VectorIn<Scalar> gain, Scalar eps, MatrixOut<Scalar> y,
                      VectorOut<Scalar> rstd) {
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      rstd[n] = Scalar(1) / std::sqrt(x.row(n).squaredNorm() / Scalar(x.cols()) + eps);
      y.row(n) = (rstd[n] * x.row(n)).cwiseProduct(gain.transpose());
    }
  });
}

template <class Scalar>
void rms_norm_backward(MatrixIn<Scalar> dy, MatrixIn<Scalar> x, VectorIn<Scalar> gain,
                       VectorIn<Scalar> rstd, MatrixOut<Scalar> dx, VectorOut<Scalar> dgain) {
  // First the sum over tokens, which reads dy: each thread owns some channels and walks the tokens
  // in order.
  for_each_tile(x.cols(), kChannelTile, [&](Index first, Index count) {
    for (Index n = 0; n < x.rows(); ++n)
      dgain.segment(first, count) +=
          rstd[n] *
          dy.row(n).segment(first, count).cwiseProduct(x.row(n).segment(first, count)).transpose();
  });
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) {
      const Scalar r = rstd[n];
      const auto g = dy.row(n).cwiseProduct(gain.transpose());
      const Scalar along = g.dot(x.row(n)) * r * r * r / Scalar(x.cols());
      dx.row(n) = r * g - along * x.row(n);
    }
  });
}

#define INSTANTIATE(S)                                                                        \
  template void rms_norm_statistics<S>(MatrixIn<S>, S, VectorOut<S>);                         \
  template void rms_norm_forward<S>(MatrixIn<S>, VectorIn<S>, S, MatrixOut<S>, VectorOut<S>); \
  template void rms_norm_backward<S>(MatrixIn<S>, MatrixIn<S>, VectorIn<S>, VectorIn<S>,      \
                                     MatrixOut<S>, VectorOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
