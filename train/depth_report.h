// What a trained model's depth attention does: mean routing weights by site, source and head, their
// entropy, and how large outputs and gradients are at every depth.  As table, JSON and heat map.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/windows.h"
#include "train/model.h"

namespace attnres {

struct SiteReport {
  std::string name;             ///< "model.layers.0.mlp_res"
  std::vector<Index> sources;   ///< plan order
  Matrix<double> mean_weight;   ///< [S, H], mean over tokens; columns sum to 1
  std::vector<double> entropy;  ///< per head: mean over tokens of -sum a log a, in nats
  std::optional<double> gate;   ///< delta form
};

struct DepthReport {
  Index heads = 0;                    ///< H; 0 for the residual model, which has no sites
  std::vector<SiteReport> sites;      ///< l = 1..L+1
  std::vector<double> output_rms;     ///< of source writer 0 (embedding), 1..L
  std::vector<double> gradient_norm;  ///< of dLoss/doutput, likewise
  std::size_t tokens = 0;             ///< that the means run over
};

/// Runs `batches` batches of the model's own batch shape forward and backward; leaves the model's
/// gradients zero.  Means run over every token that carries a loss.
DepthReport inspect_depth(ReferenceModel& model, const Windows& data, std::size_t batches);

std::string depth_table(const DepthReport& report);
nlohmann::json depth_json(const DepthReport& report);

}  // namespace attnres
