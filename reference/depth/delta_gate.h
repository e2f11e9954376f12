// The gate of the delta form: depth attention added to the residual stream instead of replacing it.
// Delta Attention Residuals, arXiv 2605.18855.  A gate of 0 leaves the residual model, bit for bit.
#pragma once

#include "reference/tensor.h"

namespace attnres {

/// input = x + gate * o.   x (the residual stream), o (depth attention), input [N, D]; overwritten.
template <class Scalar>
void delta_gate_forward(MatrixIn<Scalar> x, MatrixIn<Scalar> o, Scalar gate,
                        MatrixOut<Scalar> input);

/// do = gate * dinput (overwritten);  returns dgate = sum_{n,d} dinput o.  dx is dinput itself.
/// The sum runs over tokens in order, one partial per token, so its bits do not depend on threads;
/// row_sums [N] is scratch.
template <class Scalar>
Scalar delta_gate_backward(MatrixIn<Scalar> dinput, MatrixIn<Scalar> o, Scalar gate,
                           MatrixOut<Scalar> doutput, VectorOut<Scalar> row_sums);

}  // namespace attnres
