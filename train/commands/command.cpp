#include "train/commands/command.h"

#include <cstdio>

#include "data/byte_tokenizer.h"
#include "train/checkpoint.h"
#include "train/files.h"
#include "train/presets.h"

namespace attnres {

std::optional<cxxopts::ParseResult> parse(cxxopts::Options& options, int argc, char** argv,
                                          const std::string& examples) {
  options.add_options()("h,help", "Print this help");
  try {
    cxxopts::ParseResult result = options.parse(argc, argv);
    if (result.count("help")) {
      std::printf("%s\nExamples:\n%s\n", options.help().c_str(), examples.c_str());
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
