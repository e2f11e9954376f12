#include "train/commands/command.h"

#include <glob.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/byte_vocabulary.h"
#include "data/files.h"
#include "reference/parallel.h"
#include "train/checkpoint.h"
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
    if (result.count("threads")) {
      const int threads = result["threads"].as<int>();
      if (threads < 0 || threads > 1024) throw UsageError("--threads must lie between 0 and 1024");
      set_threads(threads);
    }
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

namespace {

Tokenizer named_or_own_tokenizer(const cxxopts::ParseResult& arguments,
                                 const std::filesystem::path& model_folder,
                                 const ModelConfig& config) {
  if (arguments.count("tokenizer"))
    return Tokenizer::open(arguments["tokenizer"].as<std::string>());
  if (const auto folder = tokenizer_folder(model_folder)) return Tokenizer::open(folder->string());
  if (tokenizer_of(model_folder, config) == "bytes") return Tokenizer::bytes();
  throw std::runtime_error(model_folder.string() +
                           ": was not trained on bytes and has no tokenizer.json; --tokenizer "
                           "names one");
}

}  // namespace

Tokenizer model_tokenizer(const cxxopts::ParseResult& arguments,
                          const std::filesystem::path& model_folder, const ModelConfig& config) {
  Tokenizer tokenizer = named_or_own_tokenizer(arguments, model_folder, config);
  if (tokenizer.vocabulary() > config.vocab_size)
    throw std::runtime_error("the tokenizer has ids up to " +
                             std::to_string(tokenizer.vocabulary() - 1) +
                             ", the model's vocab_size is " + std::to_string(config.vocab_size));
  return tokenizer;
}

void check_tokenizer(const DataSplit& data, const std::filesystem::path& file,
                     const std::filesystem::path& model_folder, const ModelConfig& config) {
  if (data.bytes != (tokenizer_of(model_folder, config) == "bytes"))
    throw std::runtime_error(file.string() + (data.bytes
                                                  ? ": is text, but the model was trained on "
                                                    "token shards; attnres tokenize makes them"
                                                  : ": is a token shard, but the model was "
                                                    "trained on bytes; give it text"));
}

std::unique_ptr<ReferenceModel> load_model(const std::filesystem::path& model_folder,
                                           Index sequences, Index positions, Use use) {
  const ModelConfig config = load_config(model_folder);
  if (positions < 0) throw UsageError("--seq must be 0 or positive");
  if (positions == 0) positions = std::min<Index>(1024, config.max_position_embeddings);
  auto model = std::make_unique<ReferenceModel>(config, sequences, positions, use);
  load_parameters(model_folder, model->parameters());
  return model;
}

std::optional<RunConfig> run_config_of(const std::filesystem::path& model_folder) {
  const auto path = model_folder / "run.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  const nlohmann::json run = read_json(path);
  if (!run.is_object() || !run.contains("config"))
    throw std::runtime_error(path.string() + ": has no \"config\"");
  return run_config_from_json(run["config"]);
}

std::string tokenizer_of(const std::filesystem::path& model_folder, const ModelConfig& config) {
  if (const auto run = run_config_of(model_folder)) return run->tokenizer;
  if (tokenizer_folder(model_folder)) return "shards";
  return config.vocab_size == ByteVocabulary::kSize ||
                 config.vocab_size == padded_vocabulary(ByteVocabulary::kSize)
             ? "bytes"
             : "shards";
}

}  // namespace attnres
