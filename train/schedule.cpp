#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace attnres {

double Schedule::rate(Index step) const {
  if (step <= warmup) return peak * double(step) / double(warmup);
  if (shape == "constant") return peak;
  if (shape == "wsd") {
    const double decay_steps = std::max(1.0, decay_fraction * double(steps));
    const double x =
        std::clamp((double(step) - (double(steps) - decay_steps)) / decay_steps, 0.0, 1.0);
    return peak * (1 - (1 - final_fraction) * x);
  }
  const double x =
      std::min(1.0, double(step - warmup) / double(std::max<Index>(1, steps - warmup)));
  return peak * (final_fraction + (1 - final_fraction) * 0.5 * (1 + std::cos(M_PI * x)));
}

void Schedule::validate() const {
  if (shape != "cosine" && shape != "wsd" && shape != "constant")
    throw std::invalid_argument("schedule \"" + shape +
                                "\" is unknown; cosine, wsd and constant are known");
  if (!(peak > 0)) throw std::invalid_argument("the learning rate must be positive");
  if (steps < 1) throw std::invalid_argument("the number of steps must be at least 1");
  if (warmup < 0 || warmup > steps)
    throw std::invalid_argument("warm-up of " + std::to_string(warmup) +
                                " steps must lie between 0 and the " + std::to_string(steps) +
                                " steps of the run");
  if (final_fraction < 0 || final_fraction > 1 || decay_fraction <= 0 || decay_fraction > 1)
    throw std::invalid_argument("final and decay fractions must lie between 0 and 1");
}

}  // namespace attnres
