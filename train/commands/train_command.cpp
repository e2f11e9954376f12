// attnres train: from a preset or a config to a run folder.
#include <cstdio>

#include "data/files.h"
#include "train/commands/command.h"
#include "train/commands/run_plan.h"
#include "train/depth_report.h"
#include "train/heat_map.h"
#include "train/loss_curve.h"
#include "train/presets.h"
#include "train/text.h"
#include "train/trainer.h"

namespace attnres {
namespace {

namespace fs = std::filesystem;

const char* kExamples =
    "  attnres train --preset quickstart --mixing mhar --out runs/mhar\n"
    "  attnres train --mixing residual --out runs/residual --seed 2 --steps 400\n"
    "  attnres train --preset 100m --data \"train_*.bin\" --val-data \"val_*.bin\" \\\n"
    "                --vocab 50257 --out runs/100m --dry-run\n"
    "  attnres train --out runs/mhar --resume";

using Strings = std::vector<std::string>;
constexpr Index kGpt2Vocabulary = 50257;

void add_model_options(cxxopts::Options& o) {
  option<std::string>(o, "Model", "preset", "NAME", "quickstart, 100m, 350m, 1b", "quickstart");
  option<std::string>(o, "Model", "config", "FILE", "Shape from a config.json instead");
  option<std::string>(o, "Model", "init", "DIR",
                      "Shape and weights from a checkpoint or Hugging Face folder");
  option<std::string>(o, "Model", "mixing", "NAME",
                      "residual, attnres, block-attnres, mhar, block-mhar, window-attnres, "
                      "delta-mhar (default: mhar; with --config or --init what they say)");
  option<Index>(o, "Model", "depth-heads", "H",
                "Depth heads of the mhar forms (default: the number of KV heads)");
  option<Index>(o, "Model", "depth-blocks", "N", "Blocks of the block forms (default: 8)");
  option<Index>(o, "Model", "depth-window", "W",
                "Sources of window-attnres besides the embedding (default: 8)");
}

void add_data_options(cxxopts::Options& o) {
  option<Strings>(
      o, "Data", "data", "FILES",
      "Text files (bytes) or token shards, comma-separated (default: the bundled corpus)");
  option<Strings>(o, "Data", "val-data", "FILES",
                  "Validation files (default: the last tenth of the data)");
  option<Index>(o, "Data", "vocab", "V",
                "Ids that token shards may use (default: 50257, GPT-2's; with --config or --init "
                "the model's vocab_size)");
  option<Index>(o, "Data", "seq", "T", "Sequence length, tokens (default: the preset's)");
  option<Index>(o, "Data", "tokens-per-step", "N",
                "Tokens per optimizer step, a multiple of T (default: the preset's)");
  option<Index>(o, "Data", "micro-batch", "B",
                "Sequences per forward pass; 0 chooses; accumulation is derived", "0");
}

void add_optimizer_options(cxxopts::Options& o) {
  const char* group = "Optimization";
  option<Index>(o, group, "steps", "N", "Optimizer steps (default: the preset's)");
  option<std::uint64_t>(o, group, "seed", "S", "Seed of initialisation, data order and samples",
                        "1");
  option<double>(o, group, "lr", "X", "Peak learning rate (default: the preset's)");
  option<std::string>(o, group, "schedule", "NAME", "cosine, wsd or constant (default: cosine)");
  option<Index>(o, group, "warmup", "N",
                "Steps of linear warm-up (default: the preset's, at most a fifth of the steps)");
  option<double>(o, group, "final-fraction", "X",
                 "Last learning rate as a fraction of the peak (default: 0.1)");
  option<double>(o, group, "decay-fraction", "X",
                 "Share of the steps that wsd spends decaying (default: 0.2)");
  option<double>(o, group, "beta1", "X", "AdamW beta1", "0.9");
  option<double>(o, group, "beta2", "X", "AdamW beta2", "0.95");
  option<double>(o, group, "eps", "X", "AdamW epsilon", "1e-8");
  option<double>(o, group, "weight-decay", "X",
                 "On matrices and embeddings; not on gains, queries, gates", "0.1");
  option<double>(o, group, "clip", "X", "Largest global gradient norm; 0 does not clip", "1.0");
}

void add_run_options(cxxopts::Options& o) {
  option<std::string>(o, "Run", "out", "DIR", "Run folder: log, checkpoints, plots");
  flag(o, "Run", "resume", "Continue the run in --out from its newest complete checkpoint");
  option<Index>(o, "Run", "eval-every", "N",
                "Steps between evaluations; 0: at the end only (default: the preset's)");
  option<Index>(o, "Run", "eval-tokens", "N",
                "Validation tokens, always the same (default: the preset's)");
  option<Index>(o, "Run", "save-every", "N",
                "Steps between checkpoints; 0: at the end only (default: the preset's)");
  option<Index>(o, "Run", "keep", "N", "Newest checkpoints kept", "3");
  option<Index>(o, "Run", "sample-every", "N",
                "Steps between text samples; 0: at the end only (default: 0)");
  option<std::string>(o, "Run", "prompt", "TEXT", "What samples continue", "It is a truth");
  flag(o, "Run", "dry-run", "Print the plan and stop");
}

template <class T>
void override_with(const cxxopts::ParseResult& arguments, const char* name, T& value) {
  if (arguments.count(name)) value = arguments[name].as<T>();
}
void override_with(const cxxopts::ParseResult& arguments, const char* name,
                   std::optional<Index>& value) {
  if (arguments.count(name)) value = arguments[name].as<Index>();
}

RunConfig run_config(const cxxopts::ParseResult& a, RunConfig run) {
  for (const auto& path : files_or_corpus(a, "data")) run.data.push_back(path);
  if (a.count("val-data"))
    for (const auto& path : files_or_corpus(a, "val-data")) run.validation_data.push_back(path);
  override_with(a, "seq", run.positions);
  override_with(a, "tokens-per-step", run.tokens_per_step);
  override_with(a, "steps", run.schedule.steps);
  override_with(a, "lr", run.schedule.peak);
  override_with(a, "schedule", run.schedule.shape);
  run.schedule.warmup = std::min(run.schedule.warmup, run.schedule.steps / 5);
  override_with(a, "warmup", run.schedule.warmup);
  override_with(a, "final-fraction", run.schedule.final_fraction);
  override_with(a, "decay-fraction", run.schedule.decay_fraction);
  override_with(a, "eval-every", run.eval_every);
  override_with(a, "eval-tokens", run.eval_tokens);
  override_with(a, "save-every", run.save_every);
  override_with(a, "sample-every", run.sample_every);
  run.micro_sequences = a["micro-batch"].as<Index>();
  run.seed = a["seed"].as<std::uint64_t>();
  run.keep = a["keep"].as<Index>();
  run.prompt = a["prompt"].as<std::string>();
  run.adamw = {a["beta1"].as<double>(), a["beta2"].as<double>(), a["eps"].as<double>(),
               a["weight-decay"].as<double>(), a["clip"].as<double>()};
  run.resolve();
  return run;
}

// The shape that --config or --init gives; `init` is the folder of the latter.
std::optional<ModelConfig> given_shape(const cxxopts::ParseResult& a,
                                       const std::optional<fs::path>& init) {
  if (a.count("config") + a.count("init") + a.count("preset") > 1)
    throw std::invalid_argument("--preset, --config and --init each give a shape; choose one");
  if (a.count("config")) return load_config_file(a["config"].as<std::string>());
  if (init) return load_config(*init);
  return std::nullopt;
}

// Ids that token shards may use.
Index shard_vocabulary(const cxxopts::ParseResult& a, const std::optional<ModelConfig>& given) {
  const Index vocabulary = a.count("vocab") ? a["vocab"].as<Index>()
                           : given          ? given->vocab_size
                                            : kGpt2Vocabulary;
  if (vocabulary < 1 || vocabulary > std::numeric_limits<std::int32_t>::max())
    throw UsageError("--vocab must lie between 1 and 2^31 - 1");
  return vocabulary;
}

ModelConfig model_config(const cxxopts::ParseResult& a, const Preset& chosen,
                         const std::optional<ModelConfig>& given, const RunConfig& run,
                         Index vocabulary) {
  ModelConfig config = given.value_or(chosen.model);
  if (!given) {
    config.vocab_size = padded_vocabulary(vocabulary);
    config.max_position_embeddings = 0;
  }
  config.max_position_embeddings = std::max(config.max_position_embeddings, run.positions);
  if (config.vocab_size < vocabulary)
    throw std::invalid_argument("the data uses ids up to " + std::to_string(vocabulary - 1) +
                                " but the model's vocab_size is " +
                                std::to_string(config.vocab_size));
  if (!given || a.count("mixing")) {
    MixingOptions mixing;
    override_with(a, "mixing", mixing.name);
    override_with(a, "depth-heads", mixing.depth_heads);
    override_with(a, "depth-blocks", mixing.depth_blocks);
    override_with(a, "depth-window", mixing.window);
    apply_mixing(mixing, config);
  } else if (a.count("depth-heads") + a.count("depth-blocks") + a.count("depth-window") > 0) {
    throw std::invalid_argument("--depth-heads, --depth-blocks and --depth-window need --mixing");
  }
  config.validate();
  return config;
}

// What the run leaves to look at: a sample, the heat map, both plots.
void print_results(ReferenceModel& model, Trainer& trainer, const fs::path& out,
                   const Console& console) {
  const Evaluation& e = trainer.last_evaluation();
  const RunConfig& run = trainer.state().config;
  std::printf("\nvalidation loss %.4f, perplexity %.3f", e.loss(), e.perplexity());
  if (trainer.data().bytes) {
    const double bigram =
        bigram_bits_per_byte(trainer.data().train, trainer.data().validation, e.tokens);
    std::printf(", %.4f bits per byte (a bigram model of the same data: %.4f)", e.bits_per_byte(),
                bigram);
  }
  std::printf("\n\n");
  if (trainer.data().bytes)
    std::printf("--- sample ---\n%s\n--------------\n\n", trainer.sample_text(run.seed).c_str());
  const DepthReport report = inspect_depth(model, trainer.validation(), 8);
  std::printf("%s", heat_map_text(report, console.is_terminal()).c_str());
  const std::string title =
      "Routing weights after " + std::to_string(trainer.state().step) + " steps";
  write_file_atomically(out / "routing.svg", depth_svg(report, title));
  write_file_atomically(out / "loss.svg",
                        loss_curve_svg(out / "log.jsonl", "Loss: " + mixing_text(model.config())));
  std::printf(
      "written to %s: checkpoints/ (weights, config, optimizer), log.jsonl, routing.svg, "
      "loss.svg\n",
      out.c_str());
}

int train_and_report(ReferenceModel& model, DataSplit data, RunState state, const fs::path& out) {
  Console console;
  Trainer trainer(model, std::move(data), std::move(state), out, console);
  write_file_atomically(out / "config.json", config_to_json(model.config()).dump(2) + "\n");
  if (!trainer.run()) {
    std::printf(
        "stopped after step %ld, which is saved; continue with: attnres train --out %s --resume\n",
        long(trainer.state().step), out.c_str());
    return 130;
  }
  print_results(model, trainer, out, console);
  return 0;
}

std::vector<fs::path> paths(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

int resume(const cxxopts::ParseResult& a) {
  static const std::vector<std::string> allowed = {"out", "resume", "threads", "dry-run"};
  for (const auto& argument : a.arguments())
    if (std::find(allowed.begin(), allowed.end(), argument.key()) == allowed.end())
      throw UsageError("--" + argument.key() + " cannot change a run that --resume continues");
  const fs::path out = required(a, "out");
  const auto checkpoint = newest_valid_checkpoint(
      out, [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); });
  if (!checkpoint)
    throw std::runtime_error(out.string() + ": holds no complete checkpoint to resume from");
  const ModelConfig config = load_config(*checkpoint);
  RunState state = load_run_state(*checkpoint);
  const RunConfig run = state.config;
  ReferenceModel model(config, run.micro_sequences, run.positions);
  load_parameters(*checkpoint, model.parameters());
  load_moments(*checkpoint, model);
  DataSplit data =
      load_data(paths(run.data), paths(run.validation_data), std::int32_t(config.vocab_size));
  print_plan(model, run, data);
  if (a.count("dry-run")) return 0;
  std::printf("resuming after step %ld from %s\n", long(state.step), checkpoint->c_str());
  return train_and_report(model, std::move(data), std::move(state), out);
}

// A folder that holds nothing of value: absent, or left by a run that died before its first
// checkpoint, damaged ones included.
void check_that_out_is_free(const fs::path& out) {
  check_holds_no_model(out);
  if (holds_checkpoints(out))
    throw std::runtime_error(out.string() +
                             ": already holds a run; --resume continues it, another --out starts a "
                             "new one");
}

int start(const cxxopts::ParseResult& a) {
  const Preset chosen = preset(a["preset"].as<std::string>());
  RunConfig run = run_config(a, chosen.run);
  std::optional<fs::path> init;
  if (a.count("init")) init = resolve_model_folder(a["init"].as<std::string>());
  const auto given = given_shape(a, init);
  const Index vocabulary = shard_vocabulary(a, given);
  const fs::path out = a.count("dry-run") ? fs::path() : fs::path(required(a, "out"));
  if (!out.empty()) check_that_out_is_free(out);
  DataSplit data = load_data(paths(run.data), paths(run.validation_data), std::int32_t(vocabulary));
  run.tokenizer = data.bytes ? "bytes" : "shards";
  const ModelConfig config = model_config(a, chosen, given, run, data.vocabulary);
  ReferenceModel model(config, run.micro_sequences, run.positions);
  initialise(model.parameters(), run.seed);
  if (init) {
    check_tokenizer(data, run.data.front(), *init, config);
    load_parameters(*init, model.parameters(), a.count("mixing") > 0);
  }
  print_plan(model, run, data);
  if (a.count("dry-run")) return 0;
  fs::create_directories(out);
  fs::remove(out / "tokenizer.json");    // of a run that died here before its first checkpoint
  if (init) copy_tokenizer(*init, out);  // samples and evaluations go through the same tokenizer
  RunState state;
  state.config = run;
  return train_and_report(model, std::move(data), std::move(state), out);
}

}  // namespace

int train_command(int argc, char** argv) {
  cxxopts::Options options("attnres train", "Train a model, or continue a run with --resume.\n");
  add_model_options(options);
  add_data_options(options);
  add_optimizer_options(options);
  add_run_options(options);
  threads_option(options);
  const auto arguments =
      parse(options, argc, argv, kExamples, {"Model", "Data", "Optimization", "Run", ""});
  if (!arguments) return 0;
  try {
    return arguments->count("resume") ? resume(*arguments) : start(*arguments);
  } catch (const std::invalid_argument& error) {  // options that do not fit together
    throw UsageError(error.what());
  }
}

}  // namespace attnres
