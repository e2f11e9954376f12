// Rotary position embedding in the rotate-half layout: channel c of a head pairs with c + d/2.
// Su et al. 2021, "RoFormer", arXiv 2104.09864, equation 34, in the layout of Hugging Face Llama.
#pragma once

#include "reference/tensor.h"

namespace attnres {

/// cos and sin of the angles t * theta^(-2c/d), both [T, d/2]; d = head_dim.
template <class Scalar>
struct RotaryTable {
  Matrix<Scalar> cosine, sine;
};

/// The table for positions 0 .. positions-1; head_dim even, angles computed in double.
template <class Scalar>
RotaryTable<Scalar> make_rotary_table(Index positions, Index head_dim, double theta);

/// In place, for every head (x1, x2) of the row at position t = n mod T:
///   (x1, x2) <- (x1 cos - x2 sin,  x2 cos + x1 sin).       x [B*T, heads*d].
template <class Scalar>
void rotary_forward(MatrixOut<Scalar> x, Index positions, const RotaryTable<Scalar>& table);

/// The transpose of a rotation is the rotation back:
///   (dx1, dx2) <- (dx1 cos + dx2 sin,  dx2 cos - dx1 sin).  dx [B*T, heads*d], in place.
template <class Scalar>
void rotary_backward(MatrixOut<Scalar> dx, Index positions, const RotaryTable<Scalar>& table);

}  // namespace attnres
