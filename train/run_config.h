// Everything that determines a training run besides the model's shape; stored in run.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/adamw.h"
#include "train/schedule.h"

namespace attnres {

struct RunConfig {
  std::vector<std::string> data, validation_data;
  std::string tokenizer = "bytes";  ///< "bytes" for text, "shards" for ids that came tokenized
  std::uint64_t seed = 1;
  Index positions = 256;         ///< tokens per sequence, T
  Index tokens_per_step = 2048;  ///< per optimizer step; a multiple of positions
  Index micro_sequences = 0;     ///< sequences per forward pass; 0 chooses
  AdamWConfig adamw;
  Schedule schedule;           ///< with the number of steps
  Index eval_every = 100;      ///< steps; 0: only at the end
  Index eval_tokens = 131072;  ///< the first so many of the validation set, always the same
  Index save_every = 200;      ///< steps; 0: only at the end
  Index keep = 3;              ///< newest checkpoints kept
  Index sample_every = 0;      ///< steps; 0: only at the end
  Index sample_tokens = 400;
  std::string prompt = "It is a truth";

  Index sequences_per_step() const { return tokens_per_step / positions; }
  /// Forward passes per optimizer step.
  Index accumulation() const { return sequences_per_step() / micro_sequences; }

  /// Chooses micro_sequences where it is 0: the most that divide the step and hold at most 2048
  /// tokens, whose activations of one layer then stay in a last-level cache.
  /// Throws std::invalid_argument with one sentence if the numbers do not fit together.
  void resolve();
};

nlohmann::json to_json(const RunConfig& config);
/// Throws std::runtime_error if a key is missing: a run.json is written by this program alone.
RunConfig run_config_from_json(const nlohmann::json& json);

}  // namespace attnres
