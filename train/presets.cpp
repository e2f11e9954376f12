#include "train/presets.h"

#include <algorithm>
#include <stdexcept>

namespace attnres {
namespace {

ModelConfig shape(Index hidden, Index layers, Index heads, Index kv_heads, Index head_dim,
                  Index mlp, Index positions) {
  ModelConfig c;
  c.hidden_size = hidden;
  c.num_hidden_layers = layers;
  c.num_attention_heads = heads;
  c.num_key_value_heads = kv_heads;
  c.head_dim = head_dim;
  c.intermediate_size = mlp;
  c.max_position_embeddings = positions;
  return c;
}

// The paper's schedule: 131,072 tokens per step, 20k steps, 1,000 of warm-up, cosine to a tenth.
RunConfig paper_run(Index positions) {
  RunConfig run;
  run.positions = positions;
  run.tokens_per_step = 131072;
  run.schedule = {.shape = "cosine", .peak = 1e-3, .warmup = 1000, .steps = 20000};
  run.eval_every = 250;
  run.save_every = 500;
  run.eval_tokens = Index(1) << 20;
  return run;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

const std::vector<std::string>& preset_names() {
  static const std::vector<std::string> names = {"quickstart", "100m", "350m", "1b"};
  return names;
}

Preset preset(const std::string& name) {
  if (name == "100m") return {shape(512, 12, 8, 4, 64, 1536, 2048), paper_run(2048)};
  if (name == "350m") return {shape(1024, 24, 16, 8, 64, 4096, 1024), paper_run(1024)};
  if (name == "1b") return {shape(1280, 36, 16, 8, 80, 5120, 1024), paper_run(1024)};
  if (name != "quickstart")
    throw std::invalid_argument("unknown preset \"" + name + "\"; known are " +
                                joined(preset_names()));
  RunConfig run;
  run.schedule = {.shape = "cosine", .peak = 3e-3, .warmup = 50, .steps = 1400};
  run.tokens_per_step = 1024;
  run.eval_every = run.save_every = 350;
  run.eval_tokens = 65536;
  return {shape(128, 6, 4, 2, 32, 384, 256), run};
}

const std::vector<std::string>& mixing_names() {
  static const std::vector<std::string> names = {
      "residual", "attnres", "block-attnres", "mhar", "block-mhar", "window-attnres", "delta-mhar"};
  return names;
}

void apply_mixing(const MixingOptions& options, ModelConfig& config) {
  const auto& names = mixing_names();
  const std::string& name = options.name;
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw std::invalid_argument("unknown mixing \"" + name + "\"; known are " + joined(names));
  const bool routes = name != "residual", many_heads = name.ends_with("mhar");
  const bool delta = name == "delta-mhar", window = name == "window-attnres";
  const bool blocks = name.starts_with("block-") || (delta && options.depth_blocks);
  const auto refuse_unless = [&](bool applies, const std::optional<Index>& option,
                                 const char* what) {
    if (option && !applies) throw std::invalid_argument(name + " has no " + what);
    if (option && *option < 1) throw std::invalid_argument(std::string(what) + " must be positive");
  };
  refuse_unless(many_heads || (routes && options.depth_heads == 1), options.depth_heads,
                "depth heads to choose");
  refuse_unless(blocks, options.depth_blocks, "depth blocks");
  refuse_unless(window, options.window, "depth window");

  DepthMixing& mixing = config.depth_mixing;
  mixing = {};
  if (!routes) return;
  mixing.kind = delta ? DepthMixing::Kind::delta : DepthMixing::Kind::attention;
  mixing.heads = options.depth_heads.value_or(many_heads ? config.num_key_value_heads : 1);
  if (window) mixing.window = options.window.value_or(8);
  if (!blocks) return;
  const Index count = options.depth_blocks.value_or(std::min<Index>(8, config.sublayers()));
  if (count > config.sublayers())
    throw std::invalid_argument(std::to_string(count) + " depth blocks do not fit " +
                                std::to_string(config.sublayers()) + " sublayers");
  mixing.block_sublayers = (config.sublayers() + count - 1) / count;
}

Index padded_vocabulary(Index vocabulary) { return (vocabulary + 63) / 64 * 64; }

}  // namespace attnres
