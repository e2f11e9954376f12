// The classifier: logits = hidden head^T and softmax cross-entropy, a chunk of tokens at a time, so
// that the [N, V] logits of a whole batch never exist.
#pragma once

#include <cstdint>
#include <span>

#include "reference/tensor.h"

namespace attnres {

/// A target that carries no loss and no gradient.
inline constexpr std::int32_t kIgnoredTarget = -1;

/// Rows of the logits scratch for N tokens and V classes: at most 4 Mi values, at least 64 rows.
Index cross_entropy_chunk(Index tokens, Index vocabulary);

/// loss[n] = log sum_v exp(z[n,v]) - z[n, targets[n]],  z = hidden head^T  (0 where ignored).
///   hidden [N, D]; head [V, D]; targets [N]; loss [N], in nats; logits [chunk, V] is scratch.
/// greedy [N], unless empty: 1 where the target has the largest logit (the first of equal ones).
template <class Scalar>
void cross_entropy_forward(MatrixIn<Scalar> hidden, MatrixIn<Scalar> head,
                           std::span<const std::int32_t> targets, MatrixOut<Scalar> logits,
                           VectorOut<Scalar> loss, std::span<std::uint8_t> greedy = {});

/// The same loss, and the gradient of scale * sum_n loss[n] while the chunk's logits are at hand:
///   dz = scale * (softmax(z) - onehot(target));  dhidden = dz head;  dhead += dz^T hidden.
///   dhidden [N, D], overwritten; dhead [V, D], added to.
template <class Scalar>
void cross_entropy_forward_backward(MatrixIn<Scalar> hidden, MatrixIn<Scalar> head,
                                    std::span<const std::int32_t> targets, Scalar scale,
                                    MatrixOut<Scalar> logits, VectorOut<Scalar> loss,
                                    MatrixOut<Scalar> dhidden, MatrixOut<Scalar> dhead);

}  // namespace attnres
