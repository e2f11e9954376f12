#include "train/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

namespace attnres {
namespace {

// Draws from softmax(logits / temperature), cut to the top k and the top p; u is uniform in [0, 1).
std::int32_t draw(std::span<const float> logits, const SamplingOptions& options, double u) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (!std::isfinite(logits[order[0]]))
    throw std::runtime_error("the model's logits are not finite");
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0 && std::size_t(options.top_k) < order.size()) order.resize(options.top_k);
  std::vector<double> mass;
  double sum = 0;
  for (const std::int32_t id : order) {
    mass.push_back(std::exp((double(logits[id]) - double(logits[order[0]])) / options.temperature));
    sum += mass.back();
  }
  double kept = 0;
  std::size_t count = 0;
  while (count == 0 || (count < mass.size() && kept < options.top_p * sum)) kept += mass[count++];
  double left = u * kept;
  for (std::size_t i = 0; i < count; ++i)
    if ((left -= mass[i]) < 0) return order[i];
  return order[count - 1];
}

}  // namespace

void sample(Model& model, std::vector<std::int32_t> tokens, const SamplingOptions& options,
            const std::function<bool(std::int32_t)>& emit) {
  if (tokens.empty()) throw std::invalid_argument("a prompt needs at least one token");
  const std::size_t context = std::size_t(model.config().max_position_embeddings);
  std::vector<float> logits(std::size_t(model.config().vocab_size));
  const std::span<const float> real(logits.data(), std::size_t(options.vocabulary));
  std::mt19937_64 engine(options.seed);
  for (Index i = 0; i < options.tokens; ++i) {
    const std::size_t used = std::min(context, tokens.size());
    model.next_logits(std::span(tokens).last(used), logits);
    tokens.push_back(draw(real, options, double(engine() >> 11) * 0x1p-53));
    if (!emit(tokens.back())) return;
  }
}

}  // namespace attnres
