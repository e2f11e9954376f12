#include "train/commands/command.h"

#include <glob.h>

#include <cstdio>

#include "data/byte_tokenizer.h"
#include "reference/parallel.h"
#include "train/checkpoint.h"
#include "train/files.h"
#include "train/presets.h"

namespace attnres {

void flag(cxxopts::Options& options, const char* group, const char* name, const char* help) {
  options.add_options(group)(name, help);
}

void threads_option(cxxopts::Options& options) {
  option<int>(options, "", "threads", "N", "CPU threads; 0: all cores", "0");
}

std::optional<cxxopts::ParseResult> parse(cxxopts::Options& options, int argc, char** argv,
                                          const std::string& examples,
                                          const std::vector<std::string>& groups) {
  options.set_width(100);
  options.add_options()("h,help", "Print this help");
  try {
    cxxopts::ParseResult result = options.parse(argc, argv);
    if (result.count("threads")) set_threads(result["threads"].as<int>());
    if (result.count("help")) {
      std::printf("%s\nExamples:\n%s\n", options.help(groups).c_str(), examples.c_str());
      return std::nullopt;
    }
    if (!result.unmatched().empty())
      throw UsageError("\"" + result.unmatched().front() + "\" belongs to no option");
    return result;
  } catch (const cxxopts::exceptions::exception& error) {
    throw UsageError(error.what());
  }
}

std::string required(const cxxopts::ParseResult& arguments, const std::string& name) {
  if (!arguments.count(name)) throw UsageError("--" + name + " is needed");
  return arguments[name].as<std::string>();
}

std::vector<std::filesystem::path> files_or_corpus(const cxxopts::ParseResult& arguments,
                                                   const char* name) {
  if (!arguments.count(name)) return {ATTNRES_CORPUS};
  std::vector<std::filesystem::path> files;
  for (const auto& pattern : arguments[name].as<std::vector<std::string>>()) {
    glob_t found{};  // GLOB_NOCHECK: what matches nothing stands for itself, and is refused by name
    ::glob(pattern.c_str(), GLOB_NOCHECK, nullptr, &found);
    files.insert(files.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
  }
  return files;
}

std::unique_ptr<ReferenceModel> load_model(const std::string& folder, Index sequences,
                                           Index positions) {
  const auto path = resolve_model_folder(folder);
  const ModelConfig config = load_config(path);
  if (positions == 0) positions = std::min<Index>(1024, config.max_position_embeddings);
  auto model = std::make_unique<ReferenceModel>(config, sequences, positions);
  load_parameters(path, model->parameters());
  return model;
}

std::string tokenizer_of(const std::string& folder, const ModelConfig& config) {
  const auto run = resolve_model_folder(folder) / "run.json";
  if (std::filesystem::exists(run)) return read_json(run).at("config").value("tokenizer", "bytes");
  return config.vocab_size == padded_vocabulary(ByteTokenizer::kVocabulary) ? "bytes" : "shards";
}

}  // namespace attnres
