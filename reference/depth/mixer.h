// The seam between sublayers and depth: a site reads, a sublayer writes, and the backward pass
// mirrors both.  The transformer loop knows this interface and nothing else of what lies behind.
#pragma once

#include <memory>
#include <span>

#include "reference/depth/attention.h"
#include "reference/depth/plan.h"

namespace attnres {

/// The parameters of one site, or their gradients: views into the model's flat array.
/// Sites without a parameter (residual; the readout of the delta form) hold empty views.
template <class Scalar>
struct SiteParameters {
  VectorView<Scalar> query{nullptr, 0};     ///< q_l [D]
  VectorView<Scalar> key_gain{nullptr, 0};  ///< g_l [D]
  Scalar* gate = nullptr;                   ///< alpha_l, delta form only
};

/// One batch's passage through depth.  Forward: begin, write(0, embedding), then for every sublayer
/// l read(l), write(l), at last read(L+1).  Backward: begin_backward, read_backward(L+1), then for
/// l = L..1 write_backward(l), read_backward(l), then write_backward(0) and end_backward.
/// Sites and sublayers are numbered as in DepthPlan; every matrix is [N, D].
template <class Scalar>
class DepthMixer {
 public:
  using Sites = std::span<const SiteParameters<Scalar>>;  ///< sites 1..L+1 at index l; 0 unused

  virtual ~DepthMixer() = default;

  virtual void begin(Sites parameters) = 0;
  /// Takes the output of a sublayer (0: the embedding) into the history.
  virtual void write(Index sublayer, MatrixIn<Scalar> output) = 0;
  /// Gives a site's sublayer its input.
  virtual void read(Index site, MatrixOut<Scalar> input) = 0;

  virtual void begin_backward() = 0;
  /// Takes dLoss/dinput of a site, with the input that read() gave.
  virtual void read_backward(Index site, MatrixIn<Scalar> input, MatrixIn<Scalar> dinput) = 0;
  /// Gives dLoss/doutput of a sublayer; every site after it has been through read_backward.
  virtual void write_backward(Index sublayer, MatrixOut<Scalar> doutput) = 0;
  /// Adds the gradients of the sites' parameters.
  virtual void end_backward(Sites parameters, Sites gradients) = 0;

  /// Bytes held for one batch.
  virtual std::size_t bytes() const = 0;
  /// The plan, nullptr where nothing routes, and the routing weights [N, S*H] of a site's last
  /// read.
  virtual const DepthPlan* plan() const { return nullptr; }
  virtual Matrix<Scalar> weights(Index /*site*/) const { return {}; }
};

/// The mixer that a model's depth_mixing asks for, for batches of `tokens` tokens.
template <class Scalar>
std::unique_ptr<DepthMixer<Scalar>> make_depth_mixer(const ModelConfig& config, Index tokens);

}  // namespace attnres
