// What the trainer sees of a model: one small interface, so that the reference on the CPU and a
// model on a GPU train, evaluate and sample through the same loop.
#pragma once

#include <memory>
#include <span>

#include "reference/transformer.h"
#include "train/adamw.h"

namespace attnres {

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  /// Adds the gradient of scale * sum of token losses; returns the sum of the token losses (nats).
  virtual double accumulate(const TokenBatch& batch, float scale) = 0;
  /// The global gradient norm, and the name of the first tensor with a non-finite gradient, if any.
  virtual double gradient_norm() const = 0;
  virtual std::string non_finite_gradient() const = 0;
  /// AdamW with the accumulated gradients, which are zero afterwards.
  virtual void update(const AdamWConfig& config, double learning_rate, Index step, double norm) = 0;
  /// Loss of every target in nats, 0 where ignored; `losses` [B*T].  greedy [B*T], unless empty: 1
  /// where the target is the most likely token.
  virtual void token_losses(const TokenBatch& batch, std::span<float> losses,
                            std::span<std::uint8_t> greedy = {}) = 0;
  /// Logits [V] that follow the last of the given tokens.
  virtual void next_logits(std::span<const std::int32_t> tokens, std::span<float> logits) = 0;

  /// The weights and moments in host memory, for checkpoints.
  virtual Parameters<float>& parameters() = 0;
  virtual AdamWState& moments() = 0;
};

/// What a model is made for: inference needs neither gradients, moments nor saved activations.
enum class Use { training, inference };

/// The model of reference/, in float.  Batches of up to `sequences` x `positions` share one state.
/// Made for inference, it throws std::logic_error where training is asked of it.
class ReferenceModel final : public Model {
 public:
  ReferenceModel(const ModelConfig& config, Index sequences, Index positions,
                 Use use = Use::training);

  const ModelConfig& config() const override { return parameters_.config(); }
  double accumulate(const TokenBatch& batch, float scale) override;
  double gradient_norm() const override;
  std::string non_finite_gradient() const override;
  void update(const AdamWConfig& config, double learning_rate, Index step, double norm) override;
  void token_losses(const TokenBatch& batch, std::span<float> losses,
                    std::span<std::uint8_t> greedy = {}) override;
  void next_logits(std::span<const std::int32_t> tokens, std::span<float> logits) override;

  Parameters<float>& parameters() override { return parameters_; }
  AdamWState& moments() override { return moments_; }
  Parameters<float>& gradients();
  /// The state of the training batch shape: activations, mixer, statistics.
  TransformerState<float>& state() { return state_; }

 private:
  TransformerState<float>& sampling_state(Index positions);
  const Parameters<float>& gradients() const;

  Parameters<float> parameters_;
  std::unique_ptr<Parameters<float>> gradients_;  // none for inference
  AdamWState moments_;
  mutable Vector<double> tile_sums_;  // scratch of gradient_norm
  TransformerState<float> state_;
  std::unique_ptr<TransformerState<float>> sampling_state_;  // one sequence, made when first needed
};

}  // namespace attnres
