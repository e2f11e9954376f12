// RMSNorm over the channels of each token, forward and backward.
// Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", arXiv 1910.07467, equation 4.
#pragma once

#include "reference/tensor.h"

namespace attnres {

/// rstd[n] = (mean_d x[n,d]^2 + eps)^(-1/2).   x [N, D]; rstd [N].
/// Depth attention needs the statistic alone: its keys are rstd * x, never stored.
template <class Scalar>
void rms_norm_statistics(MatrixIn<Scalar> x, Scalar eps, VectorOut<Scalar> rstd);

/// y = rstd * x ∘ gain.   x, y [N, D]; gain [D]; saves rstd [N].  y may be x.
template <class Scalar>
void rms_norm_forward(MatrixIn<Scalar> x, VectorIn<Scalar> gain, Scalar eps, MatrixOut<Scalar> y,
                      VectorOut<Scalar> rstd);

/// With g = dy ∘ gain:
///   dx    = rstd * g - (rstd^3 / D) <g, x> x       (overwritten; dx may be dy)
///   dgain += sum_n rstd * dy ∘ x                   (added)
/// dy, x, dx [N, D]; gain, dgain [D]; rstd [N] as saved by the forward pass.
template <class Scalar>
void rms_norm_backward(MatrixIn<Scalar> dy, MatrixIn<Scalar> x, VectorIn<Scalar> gain,
                       VectorIn<Scalar> rstd, MatrixOut<Scalar> dx, VectorOut<Scalar> dgain);

}  // namespace attnres
