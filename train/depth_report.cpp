#include "train/depth_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "reference/depth/plan.h"
#include "train/text.h"

namespace attnres {
namespace {

std::vector<SiteReport> empty_sites(const DepthPlan& plan, Index heads,
                                    const Parameters<float>& parameters) {
  std::vector<SiteReport> sites;
  for (Index l = 1; l <= plan.sites(); ++l) {
    const Index S = Index(plan.sources[l].size());
    if (S == 0) continue;
    SiteReport site{site_name(plan, l), plan.sources[l], Matrix<double>::Zero(S, heads),
                    std::vector<double>(std::size_t(heads), 0.0), std::nullopt};
    if (parameters.sites()[l].gate != nullptr) site.gate = *parameters.sites()[l].gate;
    sites.push_back(std::move(site));
  }
  return sites;
}

// Adds the weights [N, S*H] of the tokens that carry a loss to the sums of one site.
void add_weights(const Matrix<float>& weights, std::span<const std::int32_t> targets,
                 SiteReport& site) {
  const Index S = site.mean_weight.rows(), H = site.mean_weight.cols();
  for (Index n = 0; n < weights.rows(); ++n) {
    if (targets[n] < 0) continue;
    for (Index k = 0; k < S; ++k)
      for (Index h = 0; h < H; ++h) {
        const double a = weights(n, k * H + h);
        site.mean_weight(k, h) += a;
        if (a > 0) site.entropy[h] -= a * std::log(a);
      }
  }
}

void divide(std::vector<double>& values, double by) {
  for (auto& value : values) value /= by;
}

void add(std::vector<double>& sums, const std::vector<double>& values) {
  sums.resize(values.size(), 0.0);
  for (std::size_t i = 0; i < values.size(); ++i) sums[i] += values[i];
}

}  // namespace

DepthReport inspect_depth(ReferenceModel& model, const Windows& data, std::size_t batches) {
  TransformerState<float>& state = model.state();
  const std::size_t B = std::size_t(state.shape.sequences), T = std::size_t(state.shape.positions);
  const DepthPlan* plan = state.mixer->plan();
  DepthReport report;
  if (plan != nullptr) {
    report.heads = model.config().depth_mixing.heads;
    report.sites = empty_sites(*plan, report.heads, model.parameters());
  }
  std::vector<std::int32_t> tokens(B * T), targets(B * T);
  batches = std::clamp<std::size_t>(batches, 1, std::max<std::size_t>(1, data.count() / B));
  state.statistics = std::make_unique<DepthStatistics>();
  for (std::size_t b = 0; b < batches; ++b) {
    std::size_t counted = 0;
    for (std::size_t s = 0; s < B; ++s)
      counted += data.read((b * B + s) % data.count(), &tokens[s * T], &targets[s * T]);
    model.accumulate({Index(B), Index(T), tokens, targets}, 1.0f / float(counted));
    model.gradients().values().setZero();
    report.tokens += counted;
    for (std::size_t l = 0; l < report.sites.size(); ++l)
      add_weights(state.mixer->weights(Index(l) + 1), targets, report.sites[l]);
    add(report.output_rms, state.statistics->output_rms);
    add(report.gradient_norm, state.statistics->gradient_norm);
  }
  state.statistics.reset();
  for (auto& site : report.sites) {
    site.mean_weight /= double(report.tokens);
    divide(site.entropy, double(report.tokens));
  }
  divide(report.output_rms, double(batches));
  divide(report.gradient_norm, double(batches));
  return report;
}

std::string depth_table(const DepthReport& report) {
  std::string text = "written by           output RMS   gradient norm\n";
  for (std::size_t i = 0; i < report.output_rms.size(); ++i)
    text += format("%-20s %10.4f   %.3e\n", source_name(Index(i)).c_str(), report.output_rms[i],
                   report.gradient_norm[i]);
  if (report.heads == 0) return text + "(the residual model has no routing)\n";
  text += "\nsite                                   head  entropy  of max    most-read sources\n";
  for (const auto& site : report.sites)
    for (Index h = 0; h < report.heads; ++h) {
      std::vector<Index> order(site.sources.size());
      for (std::size_t k = 0; k < order.size(); ++k) order[k] = Index(k);
      std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) {
        return site.mean_weight(a, h) > site.mean_weight(b, h);
      });
      const double largest = std::log(double(site.sources.size()));
      text += format("%-38s %4d  %7.3f  %5.0f %%  ", site.name.c_str(), int(h), site.entropy[h],
                     largest > 0 ? 100 * site.entropy[h] / largest : 0.0);
      for (std::size_t k = 0; k < std::min<std::size_t>(3, order.size()); ++k)
        text += format(" %s %.2f%s", source_name(site.sources[order[k]]).c_str(),
                       site.mean_weight(order[k], h),
                       k + 1 < std::min<std::size_t>(3, order.size()) ? "," : "");
      if (site.gate) text += format("   gate %.4f", *site.gate);
      text += "\n";
    }
  return text;
}

nlohmann::json depth_json(const DepthReport& report) {
  nlohmann::json sites = nlohmann::json::array();
  for (const auto& site : report.sites) {
    nlohmann::json weights = nlohmann::json::array();
    for (Index h = 0; h < report.heads; ++h) {
      std::vector<double> column(std::size_t(site.mean_weight.rows()));
      for (std::size_t k = 0; k < column.size(); ++k) column[k] = site.mean_weight(Index(k), h);
      weights.push_back(column);
    }
    nlohmann::json entry = {{"site", site.name},
                            {"sources", site.sources},
                            {"mean_weight", weights},
                            {"entropy", site.entropy}};
    if (site.gate) entry["gate"] = *site.gate;
    sites.push_back(entry);
  }
  return {{"heads", report.heads},
          {"tokens", report.tokens},
          {"sites", sites},
          {"output_rms", report.output_rms},
          {"gradient_norm", report.gradient_norm}};
}

}  // namespace attnres
