#include "reference/gradcheck.h"

#include <cmath>
#include <random>

namespace attnres {
namespace {

// (loss(x + h d) - loss(x - h d)) / 2h along one element or one direction.
double central_difference(const std::function<double()>& loss, double* values,
                          const double* direction, Index size, double step) {
  const Vector<double> kept = VectorView<double>(values, size);
  VectorView<double> x(values, size);
  const ConstVectorView<double> d(direction, size);
  x = kept + step * d;
  const double above = loss();
  x = kept - step * d;
  const double below = loss();
  x = kept;
  return (above - below) / (2 * step);
}

// Keeps the element that comes closest to, or goes furthest past, its tolerance.
struct Worst {
  GradcheckResult& result;
  const GradcheckOptions& options;
  double excess = -1;

  void see(Index index, double claimed, double numeric) {
    const double analytic = options.claim * claimed;
    const double error = std::abs(analytic - numeric);
    const double ratio = error / (options.atol + options.rtol * std::abs(numeric));
    ++result.checked;
    if (!(ratio <= 1)) result.passed = false;  // a NaN fails too
    if (ratio <= excess) return;
    excess = std::isnan(ratio) ? std::numeric_limits<double>::infinity() : ratio;
    result.max_error = error;
    result.analytic = analytic;
    result.numeric = numeric;
    result.worst = index;
  }
};

}  // namespace

std::vector<GradcheckResult> gradcheck(const std::string& subject,
                                       const std::function<double()>& loss,
                                       const std::vector<GradcheckTensor>& tensors,
                                       const GradcheckOptions& options) {
  std::vector<GradcheckResult> results;
  const double along_axis = 1;
  for (const auto& tensor : tensors) {
    GradcheckResult result{.subject = subject, .tensor = tensor.name};
    Worst worst{result, options};
    for (Index i = 0; i < tensor.size; ++i)
      worst.see(i, tensor.gradient[i],
                central_difference(loss, tensor.values + i, &along_axis, 1, options.step));
    results.push_back(result);
  }
  return results;
}

GradcheckResult gradcheck_directions(const std::string& subject,
                                     const std::function<double()>& loss,
                                     const std::vector<GradcheckTensor>& tensors, int directions,
                                     std::uint64_t seed, const GradcheckOptions& options) {
  GradcheckResult result{.subject = subject, .tensor = "random directions"};
  Worst worst{result, options};
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  for (int k = 0; k < directions; ++k) {
    std::vector<Vector<double>> direction, kept;
    double square = 0, analytic = 0;
    for (const auto& tensor : tensors) {
      direction.push_back(Vector<double>::NullaryExpr(tensor.size, [&] { return normal(engine); }));
      kept.push_back(VectorView<double>(tensor.values, tensor.size));
      square += direction.back().squaredNorm();
    }
    const double scale = 1 / std::sqrt(square);
    const auto move_to = [&](double distance) {
      for (std::size_t t = 0; t < tensors.size(); ++t)
        VectorView<double>(tensors[t].values, tensors[t].size) =
            kept[t] + distance * scale * direction[t];
      return loss();
    };
    for (std::size_t t = 0; t < tensors.size(); ++t)
      analytic +=
          scale * direction[t].dot(ConstVectorView<double>(tensors[t].gradient, tensors[t].size));
    const double above = move_to(options.step), below = move_to(-options.step);
    move_to(0);
    worst.see(k, analytic, (above - below) / (2 * options.step));
  }
  return result;
}

}  // namespace attnres
