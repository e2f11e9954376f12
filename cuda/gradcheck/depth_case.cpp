#include "cuda/gradcheck/depth_case.h"

#include <bit>
#include <random>

#include "reference/depth/plan.h"

namespace attnres {

double round_bf16(double x) {
  // Through float first would round twice: find the bfloat16 neighbours of x and choose by hand.
  const double magnitude = std::abs(x);
  if (magnitude == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(magnitude), -126);
  const double ulp = std::ldexp(1.0, exponent - 7);
  return std::nearbyint(x / ulp) * ulp;  // nearbyint ties to even
}

ModelConfig model_of(const DepthCase& c) {
  ModelConfig config;
  config.hidden_size = c.channels;
  config.num_hidden_layers = c.sublayers / 2;
  config.rms_norm_eps = c.eps;
  config.depth_mixing = c.mixing;
  config.depth_mixing.group_sites = 1;
  return config;
}

std::string DepthCase::name() const {
  static const char* generations[] = {"naive", "fused", "grouped"};
  return plan + " H " + std::to_string(mixing.heads) + ", L " + std::to_string(sublayers) + ", N " +
         std::to_string(tokens) + ", D " + std::to_string(channels) +
         (pre_norm ? ", pre-norm, " : ", ") + generations[int(generation)] +
         (group > 0 ? " by " + std::to_string(group) : "") +
         (type == RowType::bf16 ? ", bf16" : ", fp32");
}

DepthInputs::DepthInputs(const DepthCase& c) {
  std::mt19937_64 engine(c.seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> gain(0.8, 1.2);
  const Index N = c.tokens, D = c.channels, L = c.sublayers;
  const auto rows = [&](double scale) {
    return Matrix<double>(Matrix<double>::NullaryExpr(N, D, [&] {
      const double x = scale * normal(engine);
      return c.type == RowType::bf16 ? round_bf16(x) : double(float(x));
    }));
  };
  const auto gains = [&] {
    return Vector<double>(
        Vector<double>::NullaryExpr(D, [&] { return double(float(gain(engine))); }));
  };
  // Zero queries would hide a wrong backward pass, and much larger ones saturate the softmax.
  const double query_deviation = c.logits / std::sqrt(double(D));
  outputs.push_back(rows(1.0));
  dinputs.resize(1);
  queries.resize(1);
  key_gains.resize(1);
  norm_gains.resize(1);
  gates = Vector<double>::Zero(L + 2);
  for (Index l = 1; l <= L + 1; ++l) {
    if (l <= L) outputs.push_back(rows(0.25 * double(1 + l % 5)));
    dinputs.push_back(rows(0.5 + 0.5 * double(l % 3)));
    queries.push_back(Vector<double>::NullaryExpr(
        D, [&] { return double(float(query_deviation * normal(engine))); }));
    key_gains.push_back(gains());
    norm_gains.push_back(gains());
    gates[l] = double(float(0.5 + 0.5 * normal(engine)));
  }
}

DepthResult::DepthResult(const DepthCase& c) {
  const std::size_t sites = std::size_t(c.sublayers) + 2;
  for (auto* list : {&inputs, &normed, &weights, &dqueries, &dkey_gains, &dnorm_gains, &dgates})
    list->resize(sites);
  doutputs.resize(sites - 1);
}

}  // namespace attnres
