// A linear layer without bias, forward and backward: three matrix products.
#pragma once

#include "reference/tensor.h"

namespace attnres {

/// y = x W^T.   x [N, in]; W [out, in]; y [N, out] (overwritten).
template <class Scalar>
void linear_forward(MatrixIn<Scalar> x, MatrixIn<Scalar> weight, MatrixOut<Scalar> y);

/// dx = dy W.   dy [N, out]; W [out, in]; dx [N, in], overwritten.
template <class Scalar>
void linear_backward_input(MatrixIn<Scalar> dy, MatrixIn<Scalar> weight, MatrixOut<Scalar> dx);

/// dx += dy W: for an input that several linear layers read.
template <class Scalar>
void linear_backward_input_add(MatrixIn<Scalar> dy, MatrixIn<Scalar> weight, MatrixOut<Scalar> dx);

/// dW += dy^T x.   dy [N, out]; x [N, in]; dW [out, in].
template <class Scalar>
void linear_backward_weight(MatrixIn<Scalar> dy, MatrixIn<Scalar> x, MatrixOut<Scalar> dweight);

}  // namespace attnres
