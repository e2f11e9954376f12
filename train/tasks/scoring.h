// How likely a model finds a continuation: what every evaluation task is made of.
#pragma once

#include <functional>
#include <vector>

#include "train/model.h"

namespace attnres {

/// Told after every batch: how many windows of how many are scored.
using ScoringProgress = std::function<void(std::size_t done, std::size_t all)>;

struct ScoringRequest {
  std::vector<std::int32_t> context, continuation;  ///< neither may be empty
};

struct Score {
  double log_likelihood = 0;  ///< of the continuation after the context, nats
  bool greedy = true;         ///< every token of it is the most likely one at its place
};

/// Scores all requests, `sequences` at a time in windows of the model's state; a request that is
/// longer than a window loses the beginning of its context.  The numbers do not depend on
/// `sequences`, but for the rounding of products of another shape.
std::vector<Score> score(Model& model, const std::vector<ScoringRequest>& requests, Index sequences,
                         Index positions, const ScoringProgress& report);

struct RollingScore {
  double loss_sum = 0;     ///< nats
  std::size_t scored = 0;  ///< tokens: all but the first, which nothing comes before
};

/// The loss of a long text in windows of `positions` tokens that begin `stride` apart: every token
/// but the first is scored once, in the first window that holds it and what comes before it.
RollingScore score_rolling(Model& model, const std::vector<std::int32_t>& tokens, Index sequences,
                           Index positions, Index stride, const ScoringProgress& report);

}  // namespace attnres
