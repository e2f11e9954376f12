#include "train/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "data/files.h"
#include "train/safetensors.h"

namespace attnres {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// What a model needs to run, and what training needs to go on.
constexpr const char* kModelFiles[] = {"config.json", "model.safetensors"};
constexpr const char* kFiles[] = {"config.json", "model.safetensors", "optimizer.safetensors",
                                  "run.json"};

std::vector<TensorToWrite> tensors_of(const ParameterLayout& layout, const Vector<float>& values,
                                      const std::string& prefix = "") {
  std::vector<TensorToWrite> tensors;
  for (const auto& spec : layout.specs)
    tensors.push_back({prefix + spec.name, "F32", spec.shape,
                       std::as_bytes(std::span(values.data() + spec.offset, spec.size()))});
  return tensors;
}

void write_optimizer(const fs::path& path, Model& model) {
  const ParameterLayout& layout = model.parameters().layout();
  auto tensors = tensors_of(layout, model.moments().m, "m.");
  const auto v = tensors_of(layout, model.moments().v, "v.");
  tensors.insert(tensors.end(), v.begin(), v.end());
  write_safetensors(path, tensors);
}

json run_to_json(const RunState& state) {
  return {{"step", state.step},
          {"position", {{"epoch", state.position.epoch}, {"window", state.position.window}}},
          {"data", {{"train_hash", state.train_hash}, {"validation_hash", state.validation_hash}}},
          {"config", to_json(state.config)}};
}

json marker(const fs::path& folder) {
  json files = json::object();
  for (const char* name : kFiles)
    files[name] = {{"bytes", fs::file_size(folder / name)},
                   {"fnv1a", to_hex(file_hash(folder / name))}};
  return {{"files", files}};
}

// What is wrong with these files of a checkpoint, or nothing.
std::string damage(const fs::path& checkpoint, std::span<const char* const> files) {
  try {
    const json expected = read_json(checkpoint / "complete.json").at("files");
    for (const char* name : files) {
      const fs::path path = checkpoint / name;
      if (!fs::exists(path)) return std::string(name) + " is missing";
      if (fs::file_size(path) != expected.at(name).at("bytes").get<std::uintmax_t>())
        return std::string(name) + " has " + std::to_string(fs::file_size(path)) + " bytes, not " +
               expected.at(name).at("bytes").dump();
      if (to_hex(file_hash(path)) != expected.at(name).at("fnv1a").get<std::string>())
        return std::string(name) + " does not match its hash";
    }
  } catch (const std::exception& error) {
    return std::string("complete.json cannot be used: ") + error.what();
  }
  return {};
}

// Folders "step-..." of a run, newest first; half-written ones end in .tmp and are not among them.
std::vector<fs::path> checkpoints_of(const fs::path& run_folder) {
  std::vector<fs::path> found;
  const fs::path folder = run_folder / "checkpoints";
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name.starts_with("step-") && !name.ends_with(".tmp"))
      found.push_back(entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

using Report = std::function<void(const std::string&)>;

// The newest checkpoint of which these files are whole; what is passed over is reported.
std::optional<fs::path> newest_whole(const fs::path& run_folder, std::span<const char* const> files,
                                     const Report& report) {
  for (const auto& checkpoint : checkpoints_of(run_folder)) {
    const std::string what = damage(checkpoint, files);
    if (what.empty()) return checkpoint;
    report("skipping the damaged checkpoint " + checkpoint.string() + ": " + what);
  }
  return std::nullopt;
}

bool holds_model(const fs::path& folder) {
  return fs::exists(folder / "config.json") &&
         (fs::exists(folder / "model.safetensors") ||
          fs::exists(folder / "model.safetensors.index.json"));
}

std::string shape_text(const std::vector<Index>& shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

// The files that hold a model's tensors, and nothing twice.
std::vector<fs::path> weight_files(const fs::path& folder) {
  if (fs::exists(folder / "model.safetensors")) return {folder / "model.safetensors"};
  const fs::path index = folder / "model.safetensors.index.json";
  const json content = read_json(index);
  if (!content.is_object() || !content.contains("weight_map") || !content["weight_map"].is_object())
    throw std::runtime_error(index.string() + ": has no weight_map");
  const json& map = content["weight_map"];
  std::set<fs::path> files;
  for (const auto& [name, file] : map.items()) {
    if (!file.is_string())
      throw std::runtime_error(index.string() + ": weight_map." + name + " is not a file name");
    files.insert(folder / file.get<std::string>());
  }
  return {files.begin(), files.end()};
}

// Tensors that other programs store and that this model does not read.
bool may_be_ignored(const std::string& name, const ModelConfig& config) {
  return name.ends_with("rotary_emb.inv_freq") ||
         (name == "lm_head.weight" && config.tie_word_embeddings);
}

}  // namespace

fs::path checkpoint_path(const fs::path& run_folder, Index step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return run_folder / "checkpoints" / name;
}

void save_model(const fs::path& folder, const Parameters<float>& parameters) {
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors",
                    tensors_of(parameters.layout(), parameters.values()));
  write_file_atomically(folder / "config.json", config_to_json(parameters.config()).dump(2) + "\n");
}

void save_checkpoint(const fs::path& run_folder, Model& model, const RunState& state) {
  const fs::path final_path = checkpoint_path(run_folder, state.step);
  fs::path temporary = final_path;
  temporary += ".tmp";
  fs::remove_all(temporary);
  save_model(temporary, model.parameters());
  write_optimizer(temporary / "optimizer.safetensors", model);
  write_file(temporary / "run.json", run_to_json(state).dump(2) + "\n");
  write_file(temporary / "complete.json", marker(temporary).dump(2) + "\n");
  sync_folder(temporary);
  fs::remove_all(final_path);  // only a damaged one can stand here: a resumed run repeats its step
  fs::rename(temporary, final_path);
  sync_folder(final_path.parent_path());
  const auto all = checkpoints_of(run_folder);
  for (std::size_t i = std::size_t(state.config.keep); i < all.size(); ++i) fs::remove_all(all[i]);
}

bool holds_checkpoints(const fs::path& run_folder) { return !checkpoints_of(run_folder).empty(); }

std::optional<fs::path> newest_valid_checkpoint(
    const fs::path& run_folder, const std::function<void(const std::string&)>& report) {
  return newest_whole(run_folder, kFiles, report);
}

fs::path resolve_model_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw std::runtime_error(folder.string() + ": no such folder");
  if (fs::is_directory(folder / "checkpoints")) {
    const auto newest = newest_whole(folder, kModelFiles, [](const std::string& line) {
      std::fprintf(stderr, "%s\n", line.c_str());
    });
    if (newest) return *newest;
    throw std::runtime_error(folder.string() + ": has no complete checkpoint yet");
  }
  if (!holds_model(folder))
    throw std::runtime_error(folder.string() +
                             ": holds no model (config.json and model.safetensors) and no run");
  if (fs::exists(folder / "complete.json"))
    if (const std::string what = damage(folder, kModelFiles); !what.empty())
      throw std::runtime_error(folder.string() + ": is damaged: " + what);
  return folder;
}

void check_holds_no_model(const fs::path& folder) {
  if (fs::exists(folder) && !fs::is_directory(folder))
    throw std::runtime_error(folder.string() + ": is a file; --out names a folder");
  if (fs::exists(folder / "model.safetensors") || holds_model(folder))
    throw std::runtime_error(folder.string() + ": already holds a model; choose another --out");
}

std::optional<fs::path> tokenizer_folder(const fs::path& model_folder) {
  for (const fs::path& folder : {model_folder, model_folder / ".." / ".."})
    if (fs::exists(folder / "tokenizer.json") &&
        (folder == model_folder || fs::exists(model_folder / "run.json")))
      return folder;
  return std::nullopt;
}

void copy_tokenizer(const fs::path& model_folder, const fs::path& to) {
  const fs::path from = tokenizer_folder(model_folder).value_or(model_folder);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "vocab.json", "merges.txt", "generation_config.json"})
    if (fs::exists(from / name))
      fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing);
}

ModelConfig load_config_file(const fs::path& path) {
  try {
    return config_from_json(read_json(path));
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

ModelConfig load_config(const fs::path& model_folder) {
  return load_config_file(model_folder / "config.json");
}

template <class Scalar>
void load_parameters(const fs::path& model_folder, Parameters<Scalar>& parameters,
                     bool keep_new_depth) {
  std::set<std::string> missing;
  for (const auto& spec : parameters.layout().specs)
    if (!keep_new_depth || !spec.routes()) missing.insert(spec.name);
  for (const auto& path : weight_files(model_folder)) {
    const SafetensorsFile file(path);
    for (const auto& [name, info] : file.tensors()) {
      const ParameterSpec* spec = parameters.layout().find(name);
      if (spec == nullptr) {
        if (may_be_ignored(name, parameters.config())) continue;
        throw std::runtime_error(path.string() + ": tensor \"" + name +
                                 "\" is no parameter of the model that config.json describes");
      }
      if (info.shape != spec->shape)
        throw std::runtime_error(path.string() + ": tensor \"" + name + "\" has shape " +
                                 shape_text(info.shape) + "; config.json asks for " +
                                 shape_text(spec->shape));
      file.read<Scalar>(
          name, std::span(parameters.values().data() + spec->offset, std::size_t(spec->size())));
      missing.erase(name);
    }
  }
  if (!missing.empty())
    throw std::runtime_error(
        model_folder.string() + ": tensor \"" + *missing.begin() + "\" is missing" +
        (missing.size() > 1 ? ", and " + std::to_string(missing.size() - 1) + " more" : ""));
}

template void load_parameters<float>(const fs::path&, Parameters<float>&, bool);
template void load_parameters<double>(const fs::path&, Parameters<double>&, bool);

RunState load_run_state(const fs::path& checkpoint) {
  RunState state;
  const json run = read_json(checkpoint / "run.json");
  try {
    state.step = run.at("step").get<Index>();
    state.position = {run.at("position").at("epoch").get<std::uint64_t>(),
                      run.at("position").at("window").get<std::uint64_t>()};
    state.train_hash = run.at("data").at("train_hash").get<std::string>();
    state.validation_hash = run.at("data").at("validation_hash").get<std::string>();
    state.config = run_config_from_json(run.at("config"));
  } catch (const json::exception&) {
    throw std::runtime_error((checkpoint / "run.json").string() +
                             ": a key is missing or malformed");
  }
  return state;
}

void load_moments(const fs::path& checkpoint, Model& model) {
  const SafetensorsFile file(checkpoint / "optimizer.safetensors");
  for (const auto& spec : model.parameters().layout().specs) {
    const auto read = [&](const char* moment, Vector<float>& values) {
      file.read<float>(moment + spec.name,
                       std::span(values.data() + spec.offset, std::size_t(spec.size())));
    };
    read("m.", model.moments().m);
    read("v.", model.moments().v);
  }
}

}  // namespace attnres
