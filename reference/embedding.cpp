#include "reference/embedding.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
void embedding_forward(std::span<const std::int32_t> tokens, MatrixIn<Scalar> table,
                       MatrixOut<Scalar> x) {
  for_each_tile(x.rows(), kTokenTile, [&](Index first, Index count) {
    for (Index n = first; n < first + count; ++n) x.row(n) = table.row(tokens[n]);
  });
}

template <class Scalar>
void embedding_backward(std::span<const std::int32_t> tokens, MatrixIn<Scalar> dx,
                        MatrixOut<Scalar> dtable) {
  // Two tokens may share a row, so threads own channels, not tokens.
  for_each_tile(dx.cols(), kChannelTile, [&](Index first, Index count) {
    for (Index n = 0; n < dx.rows(); ++n)
      dtable.row(tokens[n]).segment(first, count) += dx.row(n).segment(first, count);
  });
}

#define INSTANTIATE(S)                                                                          \
  template void embedding_forward<S>(std::span<const std::int32_t>, MatrixIn<S>, MatrixOut<S>); \
  template void embedding_backward<S>(std::span<const std::int32_t>, MatrixIn<S>, MatrixOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
