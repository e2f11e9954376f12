// The shape of a model: Hugging Face's Llama keys, and how its sublayers mix across depth.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "reference/tensor.h"

namespace attnres {

/// How sublayers talk across depth; "depth_mixing" in config.json.
struct DepthMixing {
  enum class Kind { residual, attention, delta };
  Kind kind = Kind::residual;
  Index heads = 1;            ///< depth heads H; 1 is Attention Residuals, more is MHAR
  Index block_sublayers = 1;  ///< sublayers per block; 1 is the full form
  Index window = 0;           ///< v_0 and the last `window` sources; 0 keeps every source
  Index group_sites = 1;      ///< sites evaluated together in two phases; changes no result
};

struct ModelConfig {
  Index hidden_size = 0, intermediate_size = 0, num_hidden_layers = 0;
  Index num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  Index vocab_size = 0, max_position_embeddings = 2048;
  double rms_norm_eps = 1e-6, rope_theta = 10000.0;
  bool tie_word_embeddings = true;
  bool qk_norm = false;  ///< RMSNorm on every query and key head, before the rotation (Qwen3)
  DepthMixing depth_mixing;

  Index sublayers() const { return 2 * num_hidden_layers; }  ///< L

  /// Throws std::invalid_argument with one sentence if the numbers do not fit together.
  void validate() const;
};

/// Reads config.json's content.  Missing keys, unknown depth_mixing keys and what this code does
/// not compute (rope scaling, biases, other activations) throw std::invalid_argument by name.
ModelConfig config_from_json(const nlohmann::json& json);
nlohmann::json config_to_json(const ModelConfig& config);

std::string to_string(DepthMixing::Kind kind);

/// Floating-point operations that training takes per token: 6 per parameter of a matrix product
/// (2 forward, 4 backward) and 6 T * heads * head_dim per layer for causal attention over T
/// positions, of which a token sees half.  Routing is not counted: it is overhead, not model.
double training_flops_per_token(const ModelConfig& config, Index positions);

}  // namespace attnres
