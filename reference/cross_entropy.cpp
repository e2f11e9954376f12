#include "reference/cross_entropy.h"

#include <cmath>

#include "reference/instantiate.h"
#include "reference/linear.h"
#include "reference/parallel.h"

namespace attnres {
namespace {

// Turns one token's logits z into exp(z - max) and returns its loss; `sum` receives sum_v exp.
template <class Scalar>
Scalar softmax_loss(Eigen::Ref<Eigen::Matrix<Scalar, 1, Eigen::Dynamic>> z, std::int32_t target,
                    Scalar& sum) {
  const Scalar max = z.maxCoeff();
  const Scalar at_target = target == kIgnoredTarget ? Scalar(0) : z[target] - max;
  z.array() = (z.array() - max).exp();
  sum = z.sum();
  return target == kIgnoredTarget ? Scalar(0) : std::log(sum) - at_target;
}

}  // namespace

Index cross_entropy_chunk(Index tokens, Index vocabulary) {
  const Index rows = std::clamp<Index>((Index(1) << 22) / vocabulary, 64, 1024);
  return std::min(tokens, rows);
}

template <class Scalar>
void cross_entropy_forward(MatrixIn<Scalar> hidden, MatrixIn<Scalar> head,
                           std::span<const std::int32_t> targets, MatrixOut<Scalar> logits,
                           VectorOut<Scalar> loss, std::span<std::uint8_t> greedy) {
  for (Index start = 0; start < hidden.rows(); start += logits.rows()) {
    const Index rows = std::min(logits.rows(), hidden.rows() - start);
    auto z = logits.topRows(rows);
    linear_forward<Scalar>(hidden.middleRows(start, rows), head, z);
    for_each_tile(rows, kTokenTile, [&](Index first, Index count) {
      for (Index n = first; n < first + count; ++n) {
        if (!greedy.empty()) {
          Index largest;
          z.row(n).maxCoeff(&largest);
          greedy[start + n] = largest == targets[start + n];
        }
        Scalar sum;
        loss[start + n] = softmax_loss<Scalar>(z.row(n), targets[start + n], sum);
      }
    });
  }
}

template <class Scalar>
void cross_entropy_forward_backward(MatrixIn<Scalar> hidden, MatrixIn<Scalar> head,
                                    std::span<const std::int32_t> targets, Scalar scale,
                                    MatrixOut<Scalar> logits, VectorOut<Scalar> loss,
                                    MatrixOut<Scalar> dhidden, MatrixOut<Scalar> dhead) {
  for (Index start = 0; start < hidden.rows(); start += logits.rows()) {
    const Index rows = std::min(logits.rows(), hidden.rows() - start);
    auto z = logits.topRows(rows);
    linear_forward<Scalar>(hidden.middleRows(start, rows), head, z);
    for_each_tile(rows, kTokenTile, [&](Index first, Index count) {
      for (Index n = first; n < first + count; ++n) {
        const std::int32_t target = targets[start + n];
        Scalar sum;
        loss[start + n] = softmax_loss<Scalar>(z.row(n), target, sum);
        z.row(n) *= target == kIgnoredTarget ? Scalar(0) : scale / sum;
        if (target != kIgnoredTarget) z(n, target) -= scale;
      }
    });
    linear_backward_input<Scalar>(z, head, dhidden.middleRows(start, rows));
    linear_backward_weight<Scalar>(z, hidden.middleRows(start, rows), dhead);
  }
}

#define INSTANTIATE(S)                                                                            \
  template void cross_entropy_forward<S>(MatrixIn<S>, MatrixIn<S>, std::span<const std::int32_t>, \
                                         MatrixOut<S>, VectorOut<S>, std::span<std::uint8_t>);    \
  template void cross_entropy_forward_backward<S>(MatrixIn<S>, MatrixIn<S>,                       \
                                                  std::span<const std::int32_t>, S, MatrixOut<S>, \
                                                  VectorOut<S>, MatrixOut<S>, MatrixOut<S>);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
