// The Llama-style transformer: loss and gradients of a batch from named parameters.  The residual
// form is Hugging Face's LlamaForCausalLM; how sublayers mix across depth is the mixer's affair.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reference/depth/mixer.h"
#include "reference/parameters.h"
#include "reference/rotary.h"
#include "reference/sequence_attention.h"

namespace attnres {

/// B sequences of T tokens, row-major [B, T]; targets likewise, kIgnoredTarget where none.
struct TokenBatch {
  Index sequences, positions;
  std::span<const std::int32_t> tokens, targets;
};

/// What the attention sublayer of one layer saves for its backward pass; N = B*T rows.
template <class Scalar>
struct AttentionSublayerState {
  Matrix<Scalar> input;                 ///< what its site read [N, D]
  Vector<Scalar> rstd;                  ///< [N]
  Matrix<Scalar> normed;                ///< [N, D]
  Matrix<Scalar> query, key, value;     ///< as the attention sees them, rotated [N, heads*d]
  Matrix<Scalar> context;               ///< [N, heads*d]
  Matrix<Scalar> log_sum_exp;           ///< [heads, N]
  Matrix<Scalar> raw_query, raw_key;    ///< before the per-head norm; empty without qk_norm
  Vector<Scalar> query_rstd, key_rstd;  ///< [N*heads], [N*kv_heads]; empty without qk_norm
};

/// What the MLP sublayer of one layer saves.
template <class Scalar>
struct MlpSublayerState {
  Matrix<Scalar> input;             ///< [N, D]
  Vector<Scalar> rstd;              ///< [N]
  Matrix<Scalar> normed;            ///< [N, D]
  Matrix<Scalar> gate, up, hidden;  ///< [N, F]
};

/// Root mean squares by depth, for whoever wants to look: index 0 is the embedding, l sublayer l.
struct DepthStatistics {
  std::vector<double> output_rms;     ///< of a sublayer's output
  std::vector<double> gradient_norm;  ///< Frobenius norm of dLoss/doutput
};

/// Which layers' activations a state keeps.
enum class Saved {
  every_layer,  ///< for a backward pass
  one_layer     ///< for forward passes alone: each layer overwrites the one before it
};

/// Everything that one batch shape [B, T] needs, allocated once: saved state and scratch.
template <class Scalar>
struct TransformerState {
  TransformerState(const ModelConfig& config, Index sequences, Index positions,
                   Saved saved = Saved::every_layer);

  Index tokens() const { return shape.sequences * shape.positions; }
  std::size_t saved_bytes() const;    ///< activations kept for the backward pass, mixer excluded
  std::size_t scratch_bytes() const;  ///< gradients in flight and the logits chunk
  std::size_t mixer_bytes() const { return mixer->bytes(); }

  ModelConfig config;
  AttentionShape shape;
  RotaryTable<Scalar> rotary;
  std::unique_ptr<DepthMixer<Scalar>> mixer;
  Saved saved;
  std::vector<AttentionSublayerState<Scalar>> attention;  ///< one per layer, or one for all
  std::vector<MlpSublayerState<Scalar>> mlp;              ///< likewise
  Matrix<Scalar> final_input, hidden;                     ///< what the readout read; normed [N, D]
  Vector<Scalar> final_rstd;                              ///< [N]
  Vector<Scalar> token_loss;                              ///< nats [N]

  // Scratch, shared by all layers.
  Matrix<Scalar> output, dnormed;                 // a sublayer's output or its gradient [N, D]
  Matrix<Scalar> dquery, dkey, dvalue, dcontext;  // [N, heads*d]
  Matrix<Scalar> dgate, dup, dhidden;             // [N, F]
  Matrix<Scalar> logits;                          // [chunk, V]

  std::unique_ptr<DepthStatistics> statistics;  ///< filled by a pass when present
};

/// Mean loss in nats over the targets that count; fills state.token_loss, and `greedy` as
/// cross_entropy_forward does.
/// Tokens must lie in [0, V) and the batch must have the state's shape.
template <class Scalar>
double transformer_loss(const Parameters<Scalar>& parameters, const TokenBatch& batch,
                        TransformerState<Scalar>& state, std::span<std::uint8_t> greedy = {});

/// Logits [N, V] of every position: for small batches only, since it is N x V at once.
template <class Scalar>
void transformer_logits(const Parameters<Scalar>& parameters, const TokenBatch& batch,
                        TransformerState<Scalar>& state, MatrixOut<Scalar> logits);

/// Logits [V] after one position `t` of the first sequence: what sampling needs.
template <class Scalar>
void transformer_next_logits(const Parameters<Scalar>& parameters, const TokenBatch& batch, Index t,
                             TransformerState<Scalar>& state, VectorOut<Scalar> logits);

/// Mean loss, and the gradient of scale * sum of the token losses ADDED to `gradients`.  A step
/// over several micro-batches passes scale = 1 / (targets of the whole step).  The state must have
/// saved every layer.
template <class Scalar>
double transformer_loss_and_gradients(const Parameters<Scalar>& parameters, const TokenBatch& batch,
                                      Scalar scale, TransformerState<Scalar>& state,
                                      Parameters<Scalar>& gradients);

}  // namespace attnres
