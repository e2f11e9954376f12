#include "reference/config.h"

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

namespace attnres {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument(what); }

template <class T>
T required(const json& object, const char* key) {
  if (!object.contains(key) || object[key].is_null()) refuse(std::string("needs \"") + key + '"');
  if constexpr (std::is_same_v<T, Index>)
    if (!object[key].is_number_integer())
      refuse(std::string("\"") + key + "\" must be a whole number, not " + object[key].dump());
  try {
    return object[key].get<T>();
  } catch (const json::exception&) {
    refuse(std::string("\"") + key + "\" has the wrong type: " + object[key].dump());
  }
}

template <class T>
T optional(const json& object, const char* key, T otherwise) {
  return object.contains(key) && !object[key].is_null() ? required<T>(object, key) : otherwise;
}

DepthMixing::Kind kind_from_string(const std::string& name) {
  if (name == "residual") return DepthMixing::Kind::residual;
  if (name == "attention") return DepthMixing::Kind::attention;
  if (name == "delta") return DepthMixing::Kind::delta;
  refuse("depth_mixing.kind is \"" + name + "\"; it must be residual, attention or delta");
}

DepthMixing depth_mixing_from_json(const json& object) {
  static const std::set<std::string> known = {"kind", "heads", "block_sublayers", "window",
                                              "group_sites"};
  for (const auto& [key, value] : object.items())
    if (!known.contains(key)) refuse("depth_mixing has the unknown key \"" + key + '"');
  DepthMixing mixing;
  mixing.kind = kind_from_string(required<std::string>(object, "kind"));
  mixing.heads = optional<Index>(object, "heads", 1);
  mixing.block_sublayers = optional<Index>(object, "block_sublayers", 1);
  mixing.window = optional<Index>(object, "window", 0);
  mixing.group_sites = optional<Index>(object, "group_sites", 1);
  return mixing;
}

// Keys of other models of the Llama family that would change the result if they were ignored.
void refuse_what_is_not_computed(const json& object) {
  const auto is_set = [&](const char* key) {
    return object.contains(key) && !object[key].is_null() && object[key] != false;
  };
  if (is_set("rope_scaling"))
    refuse("rope_scaling is not supported: " + object["rope_scaling"].dump());
  if (is_set("rope_parameters")) {
    const auto type = optional<std::string>(object["rope_parameters"], "rope_type", "default");
    if (type != "default") refuse("rope_type \"" + type + "\" is not supported; only default is");
  }
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window"})
    if (is_set(key)) refuse(std::string(key) + " is not supported");
  if (const auto act = optional<std::string>(object, "hidden_act", "silu"); act != "silu")
    refuse("hidden_act \"" + act + "\" is not supported; only silu is");
  const auto type = optional<std::string>(object, "model_type", "llama");
  if (type != "llama" && type != "qwen3" && type != "attnres")
    refuse("model_type \"" + type + "\" is not supported; llama, qwen3 and attnres are");
}

void require(bool holds, const std::string& sentence) {
  if (!holds) refuse(sentence);
}

}  // namespace

std::string to_string(DepthMixing::Kind kind) {
  switch (kind) {
    case DepthMixing::Kind::residual:
      return "residual";
    case DepthMixing::Kind::attention:
      return "attention";
    case DepthMixing::Kind::delta:
      return "delta";
  }
  return "?";
}

void ModelConfig::validate() const {
  const std::pair<const char*, Index> positive[] = {
      {"hidden_size", hidden_size},
      {"intermediate_size", intermediate_size},
      {"num_hidden_layers", num_hidden_layers},
      {"num_attention_heads", num_attention_heads},
      {"num_key_value_heads", num_key_value_heads},
      {"head_dim", head_dim},
      {"vocab_size", vocab_size},
      {"max_position_embeddings", max_position_embeddings},
      {"depth_mixing.heads", depth_mixing.heads},
      {"depth_mixing.block_sublayers", depth_mixing.block_sublayers},
      {"depth_mixing.group_sites", depth_mixing.group_sites}};
  constexpr Index kLargest = Index(1) << 24;  // keeps every product of two within 64 bits
  for (const auto& [name, value] : positive)
    require(value <= kLargest, std::string(name) + " is larger than " + std::to_string(kLargest));
  require(num_hidden_layers <= 4096, "num_hidden_layers is larger than 4096");
  for (const auto& [name, value] : positive)
    require(value > 0,
            std::string(name) + " is " + std::to_string(value) + "; it must be positive");
  require(depth_mixing.window >= 0, "depth_mixing.window must be 0 (every source) or positive");
  require(head_dim % 2 == 0,
          "head_dim " + std::to_string(head_dim) + " must be even (rotary pairs)");
  require(num_attention_heads % num_key_value_heads == 0,
          "num_attention_heads " + std::to_string(num_attention_heads) +
              " must be a multiple of num_key_value_heads " + std::to_string(num_key_value_heads));
  require(hidden_size % depth_mixing.heads == 0, "hidden_size " + std::to_string(hidden_size) +
                                                     " is not divisible by depth_mixing.heads " +
                                                     std::to_string(depth_mixing.heads));
  require(depth_mixing.window == 0 || depth_mixing.block_sublayers == 1,
          "depth_mixing.window goes with block_sublayers = 1 only");
  require(rms_norm_eps > 0, "rms_norm_eps must be positive");
  require(rope_theta > 0, "rope_theta must be positive");
}

ModelConfig config_from_json(const json& object) {
  if (!object.is_object()) refuse("is not a JSON object");
  refuse_what_is_not_computed(object);
  ModelConfig c;
  c.hidden_size = required<Index>(object, "hidden_size");
  c.intermediate_size = required<Index>(object, "intermediate_size");
  c.num_hidden_layers = required<Index>(object, "num_hidden_layers");
  c.num_attention_heads = required<Index>(object, "num_attention_heads");
  c.num_key_value_heads = optional<Index>(object, "num_key_value_heads", c.num_attention_heads);
  require(c.num_attention_heads > 0, "num_attention_heads must be positive");
  c.head_dim = optional<Index>(object, "head_dim", c.hidden_size / c.num_attention_heads);
  c.vocab_size = required<Index>(object, "vocab_size");
  c.max_position_embeddings = optional<Index>(object, "max_position_embeddings", 2048);
  c.rms_norm_eps = optional<double>(object, "rms_norm_eps", 1e-6);
  c.rope_theta = optional<double>(object, "rope_theta", 10000.0);
  if (object.contains("rope_parameters"))  // where newer files keep it
    c.rope_theta = optional<double>(object["rope_parameters"], "rope_theta", c.rope_theta);
  c.tie_word_embeddings = optional<bool>(object, "tie_word_embeddings", false);
  c.qk_norm =
      optional<bool>(object, "qk_norm", optional<std::string>(object, "model_type", "") == "qwen3");
  if (object.contains("depth_mixing"))
    c.depth_mixing = depth_mixing_from_json(object["depth_mixing"]);
  c.validate();
  return c;
}

json config_to_json(const ModelConfig& c) {
  const bool plain = c.depth_mixing.kind == DepthMixing::Kind::residual;
  json object = {
      {"architectures",
       {plain ? (c.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM") : "AttnResForCausalLM"}},
      {"model_type", plain ? (c.qk_norm ? "qwen3" : "llama") : "attnres"},
      {"hidden_act", "silu"},
      {"hidden_size", c.hidden_size},
      {"intermediate_size", c.intermediate_size},
      {"num_hidden_layers", c.num_hidden_layers},
      {"num_attention_heads", c.num_attention_heads},
      {"num_key_value_heads", c.num_key_value_heads},
      {"head_dim", c.head_dim},
      {"vocab_size", c.vocab_size},
      {"max_position_embeddings", c.max_position_embeddings},
      {"rms_norm_eps", c.rms_norm_eps},
      {"rope_theta", c.rope_theta},
      {"tie_word_embeddings", c.tie_word_embeddings},
      {"qk_norm", c.qk_norm}};
  object["depth_mixing"] = {{"kind", to_string(c.depth_mixing.kind)},
                            {"heads", c.depth_mixing.heads},
                            {"block_sublayers", c.depth_mixing.block_sublayers},
                            {"window", c.depth_mixing.window},
                            {"group_sites", c.depth_mixing.group_sites}};
  return object;
}

double training_flops_per_token(const ModelConfig& c, Index positions) {
  const double query_width = double(c.num_attention_heads * c.head_dim);
  const double kv_width = double(c.num_key_value_heads * c.head_dim);
  const double layer =
      double(c.hidden_size) * (2 * query_width + 2 * kv_width + 3 * double(c.intermediate_size));
  const double head = double(c.vocab_size) * double(c.hidden_size);
  const double attention = 6.0 * double(positions) * query_width * double(c.num_hidden_layers);
  return 6.0 * (layer * double(c.num_hidden_layers) + head) + attention;
}

}  // namespace attnres
