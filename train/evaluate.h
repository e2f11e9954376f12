// Loss over a fixed token set, and the bigram model that any language model should beat.
#pragma once

#include "data/windows.h"
#include "train/model.h"

namespace attnres {

struct Evaluation {
  double loss_sum = 0;     ///< nats over all targets
  std::size_t tokens = 0;  ///< targets
  std::size_t bytes = 0;   ///< bytes that the targets stand for; 0 where that is not known
  std::uint64_t hash = 0;  ///< of the tokens and targets that were read

  double loss() const { return loss_sum / double(tokens); }
  double perplexity() const;
  double bits_per_byte() const;  ///< 0 where bytes are not known
};

/// The first `windows` windows, `sequences` at a time; the set does not depend on `sequences`.
Evaluation evaluate(Model& model, const Windows& data, std::size_t windows, Index sequences,
                    bool byte_tokens);

/// How many windows hold the first `tokens` tokens, at least one and at most all.
std::size_t windows_for(const Windows& data, Index tokens);

/// Bits per byte on `validation` (its first `tokens` tokens) of a bigram model counted on `train`
/// with one added to every count.
double bigram_bits_per_byte(const TokenData& train, const TokenData& validation,
                            std::size_t tokens);

}  // namespace attnres
