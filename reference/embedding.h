// Token embedding: a row of the table per token, and the gradient summed back into those rows.
#pragma once

#include <cstdint>
#include <span>

#include "reference/tensor.h"

namespace attnres {

/// x[n] = table[tokens[n]].   tokens [N], each in [0, V); table [V, D]; x [N, D], overwritten.
template <class Scalar>
void embedding_forward(std::span<const std::int32_t> tokens, MatrixIn<Scalar> table,
                       MatrixOut<Scalar> x);

/// dtable[v] += sum over n with tokens[n] = v of dx[n], in the order of n.   dtable [V, D].
template <class Scalar>
void embedding_backward(std::span<const std::int32_t> tokens, MatrixIn<Scalar> dx,
                        MatrixOut<Scalar> dtable);

}  // namespace attnres
