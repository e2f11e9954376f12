// Text from a model, token by token: temperature, top-k and top-p, from a seed.
#pragma once

#include <functional>
#include <vector>

#include "train/model.h"

namespace attnres {

struct SamplingOptions {
  Index tokens = 256;        ///< to generate
  double temperature = 0.8;  ///< 0 takes the likeliest token
  Index top_k = 0;           ///< keep the k likeliest; 0 keeps all
  double top_p = 1.0;        ///< keep the likeliest that together reach this probability
  std::uint64_t seed = 1;
  std::int32_t vocabulary = 0;  ///< ids at and above it (padding) are never drawn
};

/// Calls `emit` with every new token; stops early when it returns false.  The context is the last
/// max_position_embeddings tokens (the model was not trained beyond them).
void sample(Model& model, std::vector<std::int32_t> prompt, const SamplingOptions& options,
            const std::function<bool(std::int32_t)>& emit);

}  // namespace attnres
