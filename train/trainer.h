// The training loop: steps, logs, evaluations, samples, checkpoints, and a clean stop.
#pragma once

#include <filesystem>

#include "data/windows.h"
#include "train/checkpoint.h"
#include "train/console.h"
#include "train/evaluate.h"
#include "train/model.h"

namespace attnres {

class Trainer {
 public:
  /// `state.config` is resolved and `data` is what it names; state.step > 0 continues a run whose
  /// weights and moments the model already holds.  Throws std::runtime_error if the data is not
  /// what the run began with.
  Trainer(Model& model, DataSplit data, RunState state, std::filesystem::path run_folder,
          Console& console);

  /// Runs to the last step.  Returns false if it was stopped (SIGINT, SIGTERM) after saving.
  /// A non-finite loss or gradient throws std::runtime_error naming step, tensor and the newest
  /// good checkpoint.
  bool run();

  /// The prompt and what the model makes of it; byte models only.
  std::string sample_text(std::uint64_t seed);

  const RunState& state() const { return state_; }
  const Windows& validation() const { return validation_; }
  const Evaluation& last_evaluation() const { return last_evaluation_; }
  const DataSplit& data() const { return data_; }

 private:
  struct StepResult {
    double loss, norm, rate;
  };
  StepResult step();
  void stop_if_not_finite(const StepResult& result) const;
  void evaluate_now();
  void sample_now();
  void save_now();
  void log(const nlohmann::ordered_json& entry);
  std::string live_text(const StepResult& result) const;

  Model& model_;
  DataSplit data_;
  RunState state_;
  std::filesystem::path run_folder_;
  Console& console_;
  WindowLoader loader_;
  Windows validation_;
  Evaluation last_evaluation_;
  std::vector<std::int32_t> tokens_, targets_;  // of one optimizer step
  double peak_gflops_, flops_per_token_;
  double seconds_ = 0;     // spent in steps since run() began
  Index steps_timed_ = 0;  // counted in seconds_
  double tokens_per_second_ = 0;
};

/// Drops the lines of a log that a resumed run will write again, and lines cut short by a kill.
void rewind_log(const std::filesystem::path& log, Index step);

}  // namespace attnres
