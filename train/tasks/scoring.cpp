#include "train/tasks/scoring.h"

#include <algorithm>
#include <stdexcept>

#include "reference/cross_entropy.h"

namespace attnres {
namespace {

// One window: inputs from its first token on, and which of its predictions count.
struct Window {
  std::vector<std::int32_t> tokens;  // one more than inputs
  std::size_t first_counted;         // index of the first token whose loss counts, at least 1
};

// Fills batches of windows, padded at the end, which causal attention never looks at.
class Batcher {
 public:
  Batcher(Model& model, Index sequences, Index positions)
      : model_(model),
        B_(std::size_t(sequences)),
        T_(std::size_t(positions)),
        tokens_(B_ * T_),
        targets_(B_ * T_),
        losses_(B_ * T_),
        greedy_(B_ * T_) {}

  /// Calls result(window, loss, greedy) for every counted token of every window, in order.
  template <class Result>
  void run(const std::vector<Window>& windows, const ScoringProgress& report,
           const Result& result) {
    for (std::size_t first = 0; first < windows.size(); first += B_) {
      const std::size_t count = std::min(B_, windows.size() - first);
      std::fill(tokens_.begin(), tokens_.end(), 0);
      std::fill(targets_.begin(), targets_.end(), kIgnoredTarget);
      for (std::size_t b = 0; b < count; ++b) {
        const Window& w = windows[first + b];
        for (std::size_t t = 0; t + 1 < w.tokens.size(); ++t) {
          tokens_[b * T_ + t] = w.tokens[t];
          if (t + 1 >= w.first_counted) targets_[b * T_ + t] = w.tokens[t + 1];
        }
      }
      model_.token_losses({Index(B_), Index(T_), tokens_, targets_}, losses_, greedy_);
      for (std::size_t b = 0; b < count; ++b)
        for (std::size_t t = 0; t < T_; ++t)
          if (targets_[b * T_ + t] != kIgnoredTarget)
            result(first + b, losses_[b * T_ + t], greedy_[b * T_ + t] != 0);
      report(first + count, windows.size());
    }
  }

 private:
  Model& model_;
  std::size_t B_, T_;
  std::vector<std::int32_t> tokens_, targets_;
  std::vector<float> losses_;
  std::vector<std::uint8_t> greedy_;
};

}  // namespace

std::vector<Score> score(Model& model, const std::vector<ScoringRequest>& requests, Index sequences,
                         Index positions, const ScoringProgress& report) {
  std::vector<Window> windows;
  for (const auto& request : requests) {
    if (request.context.empty() || request.continuation.empty())
      throw std::invalid_argument("a context and a continuation need at least one token each");
    if (Index(request.continuation.size()) > positions)
      throw std::invalid_argument("a continuation of " +
                                  std::to_string(request.continuation.size()) +
                                  " tokens does not fit a window of " + std::to_string(positions));
    Window w;
    w.tokens = request.context;
    w.tokens.insert(w.tokens.end(), request.continuation.begin(), request.continuation.end());
    const std::size_t longest = std::size_t(positions) + 1;
    if (w.tokens.size() > longest)
      w.tokens.erase(w.tokens.begin(), w.tokens.end() - std::ptrdiff_t(longest));
    w.first_counted = w.tokens.size() - request.continuation.size();
    windows.push_back(std::move(w));
  }
  std::vector<Score> scores(requests.size());
  Batcher(model, sequences, positions)
      .run(windows, report, [&](std::size_t i, float loss, bool greedy) {
        scores[i].log_likelihood -= double(loss);
        scores[i].greedy &= greedy;
      });
  return scores;
}

RollingScore score_rolling(Model& model, const std::vector<std::int32_t>& tokens, Index sequences,
                           Index positions, Index stride, const ScoringProgress& report) {
  if (tokens.size() < 2) throw std::invalid_argument("the text has fewer than two tokens");
  if (stride < 1 || stride > positions)
    throw std::invalid_argument("the stride must lie between 1 and the window's " +
                                std::to_string(positions) + " tokens");
  std::vector<Window> windows;
  std::size_t scored_to = 1;  // tokens before it are scored, or the first
  for (std::size_t begin = 0; scored_to < tokens.size(); begin += std::size_t(stride)) {
    const std::size_t end = std::min(tokens.size(), begin + std::size_t(positions) + 1);
    windows.push_back(
        {{tokens.begin() + std::ptrdiff_t(begin), tokens.begin() + std::ptrdiff_t(end)},
         scored_to - begin});
    scored_to = end;
  }
  RollingScore sum;
  Batcher(model, sequences, positions).run(windows, report, [&](std::size_t, float loss, bool) {
    sum.loss_sum += double(loss);
    ++sum.scored;
  });
  return sum;
}

}  // namespace attnres
