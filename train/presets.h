// Named model shapes and mixings: what --preset and --mixing mean.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/config.h"
#include "train/run_config.h"

namespace attnres {

/// "quickstart", or the shapes of the MHAR paper (arXiv 2607.27230): "100m", "350m", "1b", with the
/// training lengths that go with them.  Throws std::invalid_argument for another name.
struct Preset {
  ModelConfig model;  ///< vocab_size is the data's affair
  RunConfig run;
};
Preset preset(const std::string& name);
const std::vector<std::string>& preset_names();

struct MixingOptions {
  std::string name = "mhar";  ///< one of mixing_names()
  /// Default: 1 for attnres, the number of key-value heads for mhar.
  std::optional<Index> depth_heads = {};
  /// Blocks of the block forms, default 8: block_sublayers = ceil(L / blocks).
  std::optional<Index> depth_blocks = {};
  /// Sources of window-attnres besides the embedding, default 8.
  std::optional<Index> window = {};
};
/// Sets config.depth_mixing.  Throws std::invalid_argument for an unknown name, or for options that
/// the named mixing does not have.
void apply_mixing(const MixingOptions& options, ModelConfig& config);
const std::vector<std::string>& mixing_names();

/// The next multiple of 64: the classifier's width for a vocabulary.
Index padded_vocabulary(Index vocabulary);

}  // namespace attnres
