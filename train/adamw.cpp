#include "train/adamw.h"

#include <cmath>

#include "reference/parallel.h"

namespace attnres {

namespace {
constexpr Index kTile = 1 << 14;  // values of the flat arrays that one thread takes at a time
}

double gradient_norm(const Vector<float>& gradients, Vector<double>& tile_sums) {
  tile_sums.resize(tile_count(gradients.size(), kTile));
  for_each_tile(gradients.size(), kTile, [&](Index first, Index count) {
    tile_sums[first / kTile] = gradients.segment(first, count).cast<double>().squaredNorm();
  });
  double square = 0;
  for (const double sum : tile_sums) square += sum;
  return std::sqrt(square);
}

void adamw_step(const AdamWConfig& config, double learning_rate, Index t, double norm,
                const Vector<float>& gradients, Parameters<float>& parameters, AdamWState& state) {
  const float scale = config.clip > 0 && norm > config.clip ? float(config.clip / norm) : 1.0f;
  const float b1 = float(config.beta1), b2 = float(config.beta2), eps = float(config.eps);
  const float correct1 = float(1 / (1 - std::pow(config.beta1, double(t))));
  const float correct2 = float(1 / (1 - std::pow(config.beta2, double(t))));
  const float lr = float(learning_rate);
  for (const auto& spec : parameters.layout().specs) {
    const float decay = spec.decays() ? float(config.weight_decay) : 0.0f;
    for_each_tile(spec.size(), kTile, [&](Index first, Index count) {
      const auto tile = [&](auto& values) {
        return values.segment(spec.offset + first, count).array();
      };
      auto p = tile(parameters.values()), m = tile(state.m), v = tile(state.v);
      const auto g = scale * tile(gradients);
      m = b1 * m + (1 - b1) * g;
      v = b2 * v + (1 - b2) * g.square();
      p -= lr * (correct1 * m / ((correct2 * v).sqrt() + eps) + decay * p);
    });
  }
}

}  // namespace attnres
