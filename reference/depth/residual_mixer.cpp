#include "reference/depth/residual_mixer.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
void ResidualMixer<Scalar>::write(Index sublayer, MatrixIn<Scalar> output) {
  for_each_tile(stream_.rows(), kTokenTile, [&](Index first, Index count) {
    if (sublayer == 0)
      stream_.middleRows(first, count) = output.middleRows(first, count);
    else
      stream_.middleRows(first, count) += output.middleRows(first, count);
  });
}

template <class Scalar>
void ResidualMixer<Scalar>::read(Index /*site*/, MatrixOut<Scalar> input) {
  for_each_tile(stream_.rows(), kTokenTile, [&](Index first, Index count) {
    input.middleRows(first, count) = stream_.middleRows(first, count);
  });
}

template <class Scalar>
void ResidualMixer<Scalar>::read_backward(Index /*site*/, MatrixIn<Scalar> /*input*/,
                                          MatrixIn<Scalar> dinput) {
  for_each_tile(stream_.rows(), kTokenTile, [&](Index first, Index count) {
    stream_.middleRows(first, count) += dinput.middleRows(first, count);
  });
}

template <class Scalar>
void ResidualMixer<Scalar>::write_backward(Index /*sublayer*/, MatrixOut<Scalar> doutput) {
  for_each_tile(stream_.rows(), kTokenTile, [&](Index first, Index count) {
    doutput.middleRows(first, count) = stream_.middleRows(first, count);
  });
}

#define INSTANTIATE(S) template class ResidualMixer<S>;
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
