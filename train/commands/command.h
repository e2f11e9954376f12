// The subcommands of `attnres`, and what they share: options, help, errors.
#pragma once

#include <cxxopts.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "data/token_data.h"
#include "data/tokenizer/tokenizer.h"
#include "train/model.h"
#include "train/run_config.h"

namespace attnres {

/// A mistake in how the program was called: exit status 2.  Everything else that fails exits 1.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A subcommand takes its own arguments (argv[0] is its name) and returns the exit status.
int train_command(int argc, char** argv);
int sample_command(int argc, char** argv);
int eval_command(int argc, char** argv);
int inspect_command(int argc, char** argv);
int gradcheck_command(int argc, char** argv);
int dump_command(int argc, char** argv);
int init_command(int argc, char** argv);
int tokenize_command(int argc, char** argv);
int convert_command(int argc, char** argv);
int export_command(int argc, char** argv);

/// Declares --NAME VALUE with its help, in a group of the help text; no default: it may be absent.
template <class T>
void option(cxxopts::Options& options, const char* group, const char* name, const char* value_name,
            const char* help, const char* default_value = nullptr) {
  auto value = cxxopts::value<T>();
  if (default_value != nullptr) value = value->default_value(default_value);
  options.add_options(group)(name, help, value, value_name);
}
/// Declares a --NAME that takes no value.
void flag(cxxopts::Options& options, const char* group, const char* name, const char* help);
/// Declares --threads.
void threads_option(cxxopts::Options& options);

/// Parses and sets the threads; prints help with `examples` and returns nothing if --help was
/// asked.  Throws UsageError for what does not parse and for arguments that no option takes.
/// The help shows the groups of options in the given order.
std::optional<cxxopts::ParseResult> parse(cxxopts::Options& options, int argc, char** argv,
                                          const std::string& examples,
                                          const std::vector<std::string>& groups = {""});

/// The value of an option that must be given.  Throws UsageError naming it.
std::string required(const cxxopts::ParseResult& arguments, const std::string& name);

/// Files that an option names, patterns (quoted from the shell) expanded in order of name, or the
/// bundled corpus where the option is absent.
std::vector<std::filesystem::path> files_or_corpus(const cxxopts::ParseResult& arguments,
                                                   const char* name);

/// The model in a folder that resolve_model_folder gave, for batches of the given shape; positions
/// 0 takes the longest that the model was trained for, at most 1024.
std::unique_ptr<ReferenceModel> load_model(const std::filesystem::path& model_folder,
                                           Index sequences, Index positions, Use use);

/// How the model was trained, if its folder is a checkpoint of a run.
std::optional<RunConfig> run_config_of(const std::filesystem::path& model_folder);

/// "bytes" or "shards": how the text of a model's data became ids, from its run.json; a model that
/// has none is taken for a byte model if it has no tokenizer.json and the byte vocabulary.
std::string tokenizer_of(const std::filesystem::path& model_folder, const ModelConfig& config);

/// The tokenizer that --tokenizer names, or else the model's own, which is Tokenizer::bytes() where
/// it was trained on text.  Throws std::runtime_error if it has none, or one with ids beyond the
/// model's vocabulary.
Tokenizer model_tokenizer(const cxxopts::ParseResult& arguments,
                          const std::filesystem::path& model_folder, const ModelConfig& config);

/// Throws naming `file` if its data is text and the model's is not, or the other way round.
void check_tokenizer(const DataSplit& data, const std::filesystem::path& file,
                     const std::filesystem::path& model_folder, const ModelConfig& config);

}  // namespace attnres
