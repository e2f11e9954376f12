#include "cuda/gradcheck/compare.h"

#include <algorithm>
#include <cmath>

namespace attnres {
namespace {

struct Rule {
  const char* tensor;
  const char* place;  // what an index counts
  std::vector<Matrix<double>> DepthResult::*values;
  double plain_factor;  // bf16: times the plain evaluation's error
};

constexpr double kMaxFp32 = 2e-5, kRmsFp32 = 1e-5, kMaxBf16 = 1e-5, kRmsBf16 = 0.005;
constexpr double kPlainRms = 2;  // times the plain evaluation's rms, where that is the larger limit

const Rule kRules[] = {
    {"input", "site", &DepthResult::inputs, 2},
    {"normed", "site", &DepthResult::normed, 2},
    {"weights", "site", &DepthResult::weights, 2},
    {"output gradient", "sublayer", &DepthResult::doutputs, 3},
    {"query gradient", "site", &DepthResult::dqueries, 3},
    {"key gain gradient", "site", &DepthResult::dkey_gains, 3},
    {"norm gain gradient", "site", &DepthResult::dnorm_gains, 3},
    {"gate gradient", "site", &DepthResult::dgates, 3},
};

double largest(const Matrix<double>& x) { return x.size() == 0 ? 0 : x.cwiseAbs().maxCoeff(); }

bool absent(const std::vector<Matrix<double>>& list) {
  return std::all_of(list.begin(), list.end(), [](const auto& x) { return x.size() == 0; });
}

// NaN counts as infinitely wrong: comparisons with it must not pass.
double distance(double a, double b) {
  const double d = std::abs(a - b);
  return std::isnan(d) ? INFINITY : d;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<Matrix<double>>*>> tensors_of(DepthResult& result) {
  std::vector<std::pair<std::string, std::vector<Matrix<double>>*>> list;
  for (const Rule& rule : kRules)
    for (const auto& values : result.*rule.values)
      if (values.size() > 0) {
        list.push_back({rule.tensor, &(result.*rule.values)});
        break;
      }
  return list;
}

std::vector<TensorError> compare(const DepthCase& c, const DepthResult& kernel,
                                 const DepthResult& reference, const DepthResult* plain) {
  std::vector<TensorError> errors;
  for (const Rule& rule : kRules) {
    const auto& truth = reference.*rule.values;
    double unit = 1e-30, difference = 0, truths = 0, founds = 0, product = 0;
    double plain_error = 0, plain_difference = 0;
    bool any = false;
    if (absent(kernel.*rule.values)) continue;
    for (const auto& x : truth) unit = std::max(unit, largest(x));
    TensorError e;
    e.subject = c.name();
    e.tensor = rule.tensor;
    for (std::size_t i = 0; i < truth.size(); ++i)
      for (Index k = 0; k < truth[i].size(); ++k) {
        any = true;
        const double t = truth[i].data()[k], f = (kernel.*rule.values)[i].data()[k];
        const double d = distance(f, t);
        difference += d * d;
        truths += t * t;
        founds += f * f;
        product += t * f;
        if (plain != nullptr) {
          const double p = distance((plain->*rule.values)[i].data()[k], t);
          plain_error = std::max(plain_error, p / unit);
          plain_difference += p * p;
        }
        if (d / unit < e.max_error) continue;
        e.max_error = d / unit;
        e.worst = std::string(rule.place) + " " + std::to_string(i) + " [" +
                  std::to_string(k / truth[i].cols()) + ", " + std::to_string(k % truth[i].cols()) +
                  "]";
      }
    if (!any) continue;
    const auto rms = [&](double squares) { return std::sqrt(squares / std::max(truths, 1e-60)); };
    e.rms_error = rms(difference);
    e.cosine = product / std::sqrt(std::max(truths * founds, 1e-60));
    e.limit = plain == nullptr ? kMaxFp32 : rule.plain_factor * plain_error + kMaxBf16;
    e.rms_limit =
        plain == nullptr ? kRmsFp32 : std::max(kRmsBf16, kPlainRms * rms(plain_difference));
    e.passed = e.max_error <= e.limit && e.rms_error <= e.rms_limit;
    errors.push_back(e);
  }
  return errors;
}

std::vector<TensorError> check_depth_case(const DepthCase& c, const KernelUnderTest& kernel) {
  const DepthInputs inputs(c);
  const DepthResult reference = reference_result(c, inputs);
  DepthResult found = kernel(c, inputs), again = kernel(c, inputs);
  std::vector<TensorError> errors;
  if (c.type == RowType::bf16) {
    const DepthResult plain = plain_bf16_result(c, inputs);
    errors = compare(c, found, reference, &plain);
  } else {
    errors = compare(c, found, reference, nullptr);
  }
  TensorError repeatable;
  repeatable.subject = c.name();
  repeatable.tensor = "repeatable";
  const auto first = tensors_of(found), second = tensors_of(again);
  for (std::size_t t = 0; t < first.size(); ++t)
    for (std::size_t i = 0; i < first[t].second->size(); ++i)
      if (!((*first[t].second)[i].array() == (*second[t].second)[i].array()).all()) {
        repeatable.passed = false;
        repeatable.worst = first[t].first + " " + std::to_string(i);
      }
  errors.push_back(repeatable);
  return errors;
}

}  // namespace attnres
