#include "reference/depth/delta_mixer.h"

#include "reference/depth/delta_gate.h"
#include "reference/instantiate.h"
#include "reference/parallel.h"

namespace attnres {

template <class Scalar>
DeltaMixer<Scalar>::DeltaMixer(const ModelConfig& config, Index tokens)
    : sublayers_(config.sublayers()),
      residual_(tokens, config.hidden_size),
      attention_(config, tokens),
      gates_(sublayers_ + 1),
      dgates_(sublayers_ + 1),
      outputs_(sublayers_ + 1, Matrix<Scalar>(tokens, config.hidden_size)),
      scratch_(tokens, config.hidden_size),
      row_sums_(tokens) {}

template <class Scalar>
void DeltaMixer<Scalar>::begin(Sites parameters) {
  for (Index l = 1; l <= sublayers_; ++l) gates_[l] = *parameters[l].gate;
  attention_.begin(parameters);
}

template <class Scalar>
void DeltaMixer<Scalar>::write(Index sublayer, MatrixIn<Scalar> output) {
  residual_.write(sublayer, output);
  attention_.write(sublayer, output);
}

template <class Scalar>
void DeltaMixer<Scalar>::read(Index site, MatrixOut<Scalar> input) {
  if (site > sublayers_) return residual_.read(site, input);
  attention_.read(site, outputs_[site]);
  delta_gate_forward<Scalar>(residual_.stream(), outputs_[site], gates_[site], input);
}

template <class Scalar>
void DeltaMixer<Scalar>::begin_backward() {
  residual_.begin_backward();
  attention_.begin_backward();
}

template <class Scalar>
void DeltaMixer<Scalar>::read_backward(Index site, MatrixIn<Scalar> input,
                                       MatrixIn<Scalar> dinput) {
  residual_.read_backward(site, input, dinput);
  if (site > sublayers_) return;
  dgates_[site] =
      delta_gate_backward<Scalar>(dinput, outputs_[site], gates_[site], scratch_, row_sums_);
  attention_.read_backward(site, outputs_[site], scratch_);
}

template <class Scalar>
void DeltaMixer<Scalar>::write_backward(Index sublayer, MatrixOut<Scalar> doutput) {
  residual_.write_backward(sublayer, doutput);
  attention_.write_backward(sublayer, scratch_);
  for_each_tile(doutput.rows(), kTokenTile, [&](Index first, Index count) {
    doutput.middleRows(first, count) += scratch_.middleRows(first, count);
  });
}

template <class Scalar>
void DeltaMixer<Scalar>::end_backward(Sites parameters, Sites gradients) {
  for (Index l = 1; l <= sublayers_; ++l) *gradients[l].gate += dgates_[l];
  attention_.end_backward(parameters, gradients);
}

template <class Scalar>
std::size_t DeltaMixer<Scalar>::bytes() const {
  Index values = scratch_.size() + row_sums_.size();
  for (const auto& o : outputs_) values += o.size();
  return residual_.bytes() + attention_.bytes() + std::size_t(values) * sizeof(Scalar);
}

#define INSTANTIATE(S) template class DeltaMixer<S>;
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
