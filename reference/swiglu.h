// SwiGLU, the gated activation of the MLP sublayer, forward and backward.
// Shazeer 2020, "GLU Variants Improve Transformer", arXiv 2002.05202, equation 6.
#pragma once

#include "reference/tensor.h"

namespace attnres {

/// hidden = silu(gate) ∘ up,  silu(x) = x σ(x).   gate, up, hidden [N, F], hidden overwritten.
template <class Scalar>
void swiglu_forward(MatrixIn<Scalar> gate, MatrixIn<Scalar> up, MatrixOut<Scalar> hidden);

/// With σ = σ(gate):
///   dup   = dhidden ∘ gate ∘ σ
///   dgate = dhidden ∘ up ∘ σ ∘ (1 + gate ∘ (1 - σ))         all [N, F], overwritten.
template <class Scalar>
void swiglu_backward(MatrixIn<Scalar> dhidden, MatrixIn<Scalar> gate, MatrixIn<Scalar> up,
                     MatrixOut<Scalar> dgate, MatrixOut<Scalar> dup);

}  // namespace attnres
