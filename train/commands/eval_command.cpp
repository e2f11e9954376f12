// attnres eval: loss, perplexity and bits per byte on a text or token file.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "train/checkpoint.h"
#include "train/commands/command.h"
#include "train/console.h"
#include "train/evaluate.h"
#include "train/tasks/tasks.h"

namespace attnres {

namespace {

using Result = nlohmann::ordered_json;

std::filesystem::path one_file(const cxxopts::ParseResult& a) {
  if (!a.count("data")) throw UsageError("--data is needed");
  const auto files = files_or_corpus(a, "data");
  if (files.size() != 1)
    throw UsageError("a task reads one file; --data names " + std::to_string(files.size()));
  return files[0];
}

int evaluate_task(const cxxopts::ParseResult& a) {
  const auto folder = resolve_model_folder(required(a, "checkpoint"));
  const std::string task = a["task"].as<std::string>();
  const ModelConfig config = load_config(folder);
  const Tokenizer tokenizer = model_tokenizer(a, folder, config);
  TaskOptions options;
  options.data = one_file(a);
  options.sequences = a["batch"].as<Index>();
  options.positions = a["seq"].as<Index>() > 0
                          ? a["seq"].as<Index>()
                          : std::min<Index>(1024, config.max_position_embeddings);
  options.stride =
      a.count("stride") ? a["stride"].as<Index>() : std::max<Index>(1, options.positions / 2);
  if (a["seq"].as<Index>() < 0 || a["limit"].as<Index>() < 0)
    throw UsageError("--seq and --limit must be 0 or positive");
  if (options.sequences < 1) throw UsageError("--batch must be at least 1");
  if (options.stride < 1 || options.stride > options.positions)
    throw UsageError("--stride must lie between 1 and the window's " +
                     std::to_string(options.positions) + " tokens");
  options.limit = std::size_t(a["limit"].as<Index>());

  std::unique_ptr<ReferenceModel> model;
  const ModelForWindow model_for = [&](Index positions) -> Model& {
    model = load_model(folder, options.sequences, positions, Use::inference);
    return *model;
  };
  Console console;
  const auto report = [&](std::size_t done, std::size_t all) {
    console.live(task + "  " + std::to_string(done * 100 / all) + " %  " + std::to_string(done) +
                 " of " + std::to_string(all) + " windows");
  };
  Result result;
  if (task == "wikitext2")
    result = wikitext_task(model_for, tokenizer, options, report);
  else if (task == "lambada")
    result = lambada_task(model_for, tokenizer, options, report);
  else if (task == "hellaswag")
    result = hellaswag_task(model_for, tokenizer, options, report);
  else
    throw UsageError("--task is \"" + task + "\"; it can be wikitext2, lambada or hellaswag");
  console.finish();
  for (const auto& [name, value] : result.items())
    std::printf("%-18s %s\n", name.c_str(),
                value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
  if (a.count("json")) write_file_atomically(a["json"].as<std::string>(), result.dump(2) + "\n");
  return 0;
}

}  // namespace

int eval_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres eval",
      "Loss, perplexity and bits per byte over non-overlapping windows; with --task a published\n"
      "evaluation set: lambada and hellaswag as lm-evaluation-harness defines them,\n"
      "wikitext2 in sliding windows over the raw file.\n");
  option<std::string>(options, "", "checkpoint", "DIR", "Run, checkpoint or Hugging Face folder");
  option<std::vector<std::string>>(options, "", "data", "FILES",
                                   "Text files (bytes) or token shards, comma-separated");
  option<Index>(options, "", "tokens", "N", "Evaluate the first N tokens; 0: all", "0");
  option<Index>(options, "", "seq", "T", "Window length, tokens; 0: the model's, at most 1024",
                "0");
  option<Index>(options, "", "batch", "B", "Windows at a time; changes no more than the rounding",
                "8");
  option<std::string>(options, "", "json", "FILE", "Also write the result to FILE");
  option<std::string>(options, "Tasks", "task", "NAME", "wikitext2, lambada or hellaswag");
  option<std::string>(options, "Tasks", "tokenizer", "NAME",
                      "gpt2, bytes, a tokenizer.json or its folder (default: the checkpoint's)");
  option<Index>(options, "Tasks", "stride", "N",
                "Tokens between wikitext2's windows (default: half a window)");
  option<Index>(options, "Tasks", "limit", "N", "First N examples; 0: all", "0");
  threads_option(options);
  const auto a = parse(
      options, argc, argv,
      "  attnres eval --checkpoint runs/quickstart --data data/corpus/austen.txt --tokens 100000\n"
      "  attnres eval --checkpoint runs/100m --data fineweb_val_000000.bin --json result.json\n"
      "  attnres eval --checkpoint SmolLM2-135M --task wikitext2 --data wiki.test.raw\n"
      "  attnres eval --checkpoint SmolLM2-135M --task lambada --data lambada_test.jsonl",
      {"", "Tasks"});
  if (!a) return 0;
  const std::string folder = required(*a, "checkpoint");
  for (const char* name : {"tokenizer", "stride", "limit"})
    if (a->count(name) && !a->count("task"))
      throw UsageError(std::string("--") + name + " goes with --task");
  if (a->count("task") && a->count("tokens"))
    throw UsageError("--tokens does not go with --task; --limit takes the first examples");
  if (a->count("task")) return evaluate_task(*a);
  if (!a->count("data")) throw UsageError("--data is needed");
  const Index batch = (*a)["batch"].as<Index>(), limit = (*a)["tokens"].as<Index>();
  if (batch < 1) throw UsageError("--batch must be at least 1");
  if (limit < 0) throw UsageError("--tokens must be 0 or positive");
  const auto path = resolve_model_folder(folder);
  const auto model = load_model(path, batch, (*a)["seq"].as<Index>(), Use::inference);
  const auto files = files_or_corpus(*a, "data");
  const DataSplit data = load_evaluation_data(files, std::int32_t(model->config().vocab_size));
  check_tokenizer(data, files[0], path, model->config());
  const Windows windows(data.validation, std::size_t(model->state().shape.positions));
  const std::size_t count = limit > 0 ? windows_for(windows, limit) : windows.count();
  const Evaluation e = evaluate(*model, windows, count, batch, data.bytes);
  nlohmann::ordered_json result = {{"loss", e.loss()},
                                   {"perplexity", e.perplexity()},
                                   {"tokens", e.tokens},
                                   {"window", model->state().shape.positions},
                                   {"hash", to_hex(e.hash)}};
  std::printf("loss            %.5f nats per token\nperplexity      %.4f\n", e.loss(),
              e.perplexity());
  if (e.bytes > 0) {
    std::printf("bits per byte   %.5f\n", e.bits_per_byte());
    result["bits_per_byte"] = e.bits_per_byte();
    result["bytes"] = e.bytes;
  }
  std::printf("tokens          %zu (hash %s)\n", e.tokens, to_hex(e.hash).c_str());
  if (a->count("json"))
    write_file_atomically((*a)["json"].as<std::string>(), result.dump(2) + "\n");
  return 0;
}

}  // namespace attnres
