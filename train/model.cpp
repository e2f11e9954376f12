#include "train/model.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference/parallel.h"

namespace attnres {

ReferenceModel::ReferenceModel(const ModelConfig& config, Index sequences, Index positions, Use use)
    : parameters_(config),
      gradients_(use == Use::training ? std::make_unique<Parameters<float>>(config) : nullptr),
      moments_(use == Use::training ? parameters_.layout().size : 0),
      state_(config, sequences, positions,
             use == Use::training ? Saved::every_layer : Saved::one_layer) {}

const Parameters<float>& ReferenceModel::gradients() const {
  if (!gradients_) throw std::logic_error("a model made for inference has no gradients");
  return *gradients_;
}

Parameters<float>& ReferenceModel::gradients() {
  return const_cast<Parameters<float>&>(std::as_const(*this).gradients());
}

double ReferenceModel::accumulate(const TokenBatch& batch, float scale) {
  transformer_loss_and_gradients(parameters_, batch, scale, state_, gradients());
  return state_.token_loss.cast<double>().sum();
}

double ReferenceModel::gradient_norm() const {
  return attnres::gradient_norm(gradients().values(), tile_sums_);
}

std::string ReferenceModel::non_finite_gradient() const {
  for (const auto& spec : gradients().layout().specs)
    if (!gradients().values().segment(spec.offset, spec.size()).allFinite()) return spec.name;
  return {};
}

void ReferenceModel::update(const AdamWConfig& config, double learning_rate, Index step,
                            double norm) {
  Vector<float>& gradient = gradients().values();
  adamw_step(config, learning_rate, step, norm, gradient, parameters_, moments_);
  for_each_tile(gradient.size(), Index(1) << 14,
                [&](Index first, Index count) { gradient.segment(first, count).setZero(); });
}

void ReferenceModel::token_losses(const TokenBatch& batch, std::span<float> losses,
                                  std::span<std::uint8_t> greedy) {
  transformer_loss(parameters_, batch, state_, greedy);
  VectorView<float>(losses.data(), Index(losses.size())) = state_.token_loss;
}

// Causal attention lets positions after the last token hold anything, so one state of a rounded-up
// length serves every shorter prefix.
TransformerState<float>& ReferenceModel::sampling_state(Index positions) {
  if (!sampling_state_ || sampling_state_->shape.positions < positions) {
    const Index rounded = (positions + 63) / 64 * 64;
    sampling_state_ =
        std::make_unique<TransformerState<float>>(config(), 1, rounded, Saved::one_layer);
  }
  return *sampling_state_;
}

void ReferenceModel::next_logits(std::span<const std::int32_t> tokens, std::span<float> logits) {
  TransformerState<float>& state = sampling_state(Index(tokens.size()));
  std::vector<std::int32_t> padded(std::size_t(state.shape.positions), 0);
  std::copy(tokens.begin(), tokens.end(), padded.begin());
  const TokenBatch batch{1, state.shape.positions, padded, {}};
  transformer_next_logits<float>(parameters_, batch, Index(tokens.size()) - 1, state,
                                 VectorView<float>(logits.data(), Index(logits.size())));
}

}  // namespace attnres
