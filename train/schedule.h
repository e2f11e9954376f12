// The learning rate as a pure function of the step.
#pragma once

#include <string>

#include "reference/tensor.h"

namespace attnres {

struct Schedule {
  std::string shape = "cosine";  ///< "cosine", "wsd" (warm-up, stable, decay) or "constant"
  double peak = 1e-3;
  double final_fraction = 0.1;  ///< of the peak, at the last step; cosine and wsd
  double decay_fraction = 0.2;  ///< of all steps, spent decaying; wsd
  Index warmup = 0;             ///< steps of linear warm-up
  Index steps = 1;

  /// The rate of step 1..steps.  During warm-up peak * step / warmup; then by shape:
  ///   cosine    f + (1 - f) (1 + cos(pi x)) / 2,  x the share of the steps after warm-up
  ///   wsd       1, then linearly to f over the last decay_fraction of the steps
  ///   constant  1                                                       (times the peak)
  double rate(Index step) const;
  /// Throws std::invalid_argument if the shape is unknown or a number makes no sense.
  void validate() const;
};

}  // namespace attnres
