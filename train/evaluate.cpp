#include "train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "data/byte_vocabulary.h"
#include "reference/fnv1a.h"

namespace attnres {

double Evaluation::perplexity() const { return std::exp(loss()); }

double Evaluation::bits_per_byte() const {
  return bytes == 0 ? 0 : loss_sum / std::numbers::ln2 / double(bytes);
}

std::size_t windows_for(const Windows& data, Index tokens) {
  const std::size_t wanted = (std::size_t(tokens) + data.positions() - 1) / data.positions();
  return std::clamp<std::size_t>(wanted, 1, data.count());
}

Evaluation evaluate(Model& model, const Windows& data, std::size_t windows, Index sequences,
                    bool byte_tokens) {
  Evaluation result;
  Fnv1a hash;
  const std::size_t T = data.positions(), B = std::size_t(sequences);
  std::vector<std::int32_t> tokens(B * T), targets(B * T);
  std::vector<float> losses(B * T);
  for (std::size_t first = 0; first < windows; first += B) {
    const std::size_t count = std::min(B, windows - first);
    for (std::size_t s = 0; s < count; ++s)
      result.tokens += data.read(first + s, &tokens[s * T], &targets[s * T]);
    std::fill(tokens.begin() + std::ptrdiff_t(count * T), tokens.end(), 0);
    std::fill(targets.begin() + std::ptrdiff_t(count * T), targets.end(), -1);
    model.token_losses({Index(B), Index(T), tokens, targets}, losses);
    for (std::size_t n = 0; n < count * T; ++n) {
      result.loss_sum += double(losses[n]);
      hash.add(std::uint32_t(tokens[n]));
      hash.add(std::uint32_t(targets[n]));
      if (byte_tokens && targets[n] >= 0 && targets[n] < ByteVocabulary::kEndOfDocument)
        ++result.bytes;
    }
  }
  result.hash = hash.value();
  return result;
}

double bigram_bits_per_byte(const TokenData& train, const TokenData& validation,
                            std::size_t tokens) {
  constexpr std::size_t V = std::size_t(ByteVocabulary::kSize);
  std::vector<double> pairs(V * V, 1.0), firsts(V, double(V));
  for (std::size_t i = 0; i + 1 < train.size(); ++i) {
    pairs[std::size_t(train[i]) * V + std::size_t(train[i + 1])] += 1;
    firsts[std::size_t(train[i])] += 1;
  }
  const std::size_t count = std::min(tokens, validation.size() - 1);
  double bits = 0, bytes = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t a = std::size_t(validation[i]), b = std::size_t(validation[i + 1]);
    bits -= std::log2(pairs[a * V + b] / firsts[a]);
    bytes += b < std::size_t(ByteVocabulary::kEndOfDocument);
  }
  return bits / bytes;
}

}  // namespace attnres
