// The residual stream as a mixer: x_l = v_0 + v_1 + ... + v_{l-1}, no parameters, one running sum.
// He et al. 2015, arXiv 1512.03385; pre-norm as in Llama.
#pragma once

#include "reference/depth/mixer.h"

namespace attnres {

template <class Scalar>
class ResidualMixer final : public DepthMixer<Scalar> {
 public:
  using typename DepthMixer<Scalar>::Sites;

  ResidualMixer(Index tokens, Index channels) : stream_(tokens, channels) {}

  void begin(Sites) override {}
  /// x_{l+1} = x_l + v_l, added in the order of the sublayers.
  void write(Index sublayer, MatrixIn<Scalar> output) override;
  void read(Index site, MatrixOut<Scalar> input) override;

  void begin_backward() override { stream_.setZero(); }
  /// dx += dinput: after read_backward(l+1) the stream holds dLoss/dx_{l+1} = dLoss/dv_l.
  void read_backward(Index site, MatrixIn<Scalar> input, MatrixIn<Scalar> dinput) override;
  void write_backward(Index sublayer, MatrixOut<Scalar> doutput) override;
  void end_backward(Sites, Sites) override {}

  std::size_t bytes() const override { return std::size_t(stream_.size()) * sizeof(Scalar); }

  const Matrix<Scalar>& stream() const { return stream_; }

 private:
  Matrix<Scalar> stream_;  // x on the way forward, dx on the way back [N, D]
};

}  // namespace attnres
