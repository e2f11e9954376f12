// Dense arrays of the reference: row-major matrices whose rows are tokens, and the views that
// operations take.  Views never copy: a tile of tokens or a slice of channels is passed as it lies.
#pragma once

#include <Eigen/Core>

namespace attnres {

using Eigen::Index;

/// [rows, columns], row-major: an activation is [N, D] with one token per row, a weight [out, in].
template <class Scalar>
using Matrix = Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class Scalar>
using Vector = Eigen::Matrix<Scalar, Eigen::Dynamic, 1>;

// Arguments of operations.  "In" is read, "Out" is written or added to, as each comment says.
template <class Scalar>
using MatrixIn = const Eigen::Ref<const Matrix<Scalar>>&;
template <class Scalar>
using MatrixOut = Eigen::Ref<Matrix<Scalar>>;
template <class Scalar>
using VectorIn = const Eigen::Ref<const Vector<Scalar>>&;
template <class Scalar>
using VectorOut = Eigen::Ref<Vector<Scalar>>;

// Views of memory that something else owns: parameters in their one flat array.
template <class Scalar>
using MatrixView = Eigen::Map<Matrix<Scalar>>;
template <class Scalar>
using ConstMatrixView = Eigen::Map<const Matrix<Scalar>>;
template <class Scalar>
using VectorView = Eigen::Map<Vector<Scalar>>;
template <class Scalar>
using ConstVectorView = Eigen::Map<const Vector<Scalar>>;

}  // namespace attnres
