// Checkpoints: a folder with config.json, model.safetensors, optimizer.safetensors, run.json and,
// written last, complete.json with the size and hash of each.  The folder appears under its name
// only when all of it is on disk, so a kill at any moment leaves the previous checkpoint newest.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/windows.h"
#include "train/model.h"
#include "train/run_config.h"

namespace attnres {

/// The state of a run between two steps, besides weights and moments.
struct RunState {
  Index step = 0;  ///< steps taken
  DataPosition position;
  RunConfig config;
  std::string train_hash, validation_hash;  ///< of the token ids
};

/// RUN/checkpoints/step-00000200 and so on.
std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, Index step);

/// Writes a checkpoint of the run and removes all but the newest `state.config.keep`.
void save_checkpoint(const std::filesystem::path& run_folder, Model& model, const RunState& state);

/// Writes model.safetensors and then config.json into a folder: a model without a run.
void save_model(const std::filesystem::path& folder, const Parameters<float>& parameters);

/// Whether the run has checkpoints, damaged ones included.
bool holds_checkpoints(const std::filesystem::path& run_folder);

/// The newest checkpoint of a run whose files match its complete.json.  Every damaged one that is
/// passed over is reported with what is wrong.
std::optional<std::filesystem::path> newest_valid_checkpoint(
    const std::filesystem::path& run_folder, const std::function<void(const std::string&)>& report);

/// A folder that a person named: a checkpoint, a Hugging Face folder, or a run, whose newest valid
/// checkpoint is meant; of a checkpoint only the model's own files are looked at.  Throws
/// std::runtime_error if it is none of these, or damaged.
std::filesystem::path resolve_model_folder(const std::filesystem::path& folder);

/// Throws std::runtime_error if the folder holds a model already: nothing is overwritten.
void check_holds_no_model(const std::filesystem::path& folder);
/// The folder with a model's tokenizer.json: its own, or, of a checkpoint, its run's; nothing if
/// neither has one.
std::optional<std::filesystem::path> tokenizer_folder(const std::filesystem::path& model_folder);
/// Copies tokenizer.json and its like from a model to another folder, where there are any.
void copy_tokenizer(const std::filesystem::path& model_folder, const std::filesystem::path& to);

/// Throws std::runtime_error "PATH: what does not fit".
ModelConfig load_config_file(const std::filesystem::path& path);
ModelConfig load_config(const std::filesystem::path& model_folder);

/// Weights from model.safetensors, or from the shards that model.safetensors.index.json lists; any
/// floating dtype.  Throws naming a tensor that is missing, of another shape, or unknown.
/// With keep_new_depth, depth queries, gains and gates that the file lacks keep their values: a
/// residual model becomes the start of another variant.
template <class Scalar>
void load_parameters(const std::filesystem::path& model_folder, Parameters<Scalar>& parameters,
                     bool keep_new_depth = false);

/// Where the run of a checkpoint stands, from its run.json.
RunState load_run_state(const std::filesystem::path& checkpoint);
/// The optimizer's moments of a checkpoint.
void load_moments(const std::filesystem::path& checkpoint, Model& model);

}  // namespace attnres
