// attnres eval: loss, perplexity and bits per byte on a text or token file.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "train/checkpoint.h"
#include "train/commands/command.h"
#include "train/evaluate.h"

namespace attnres {

int eval_command(int argc, char** argv) {
  cxxopts::Options options("attnres eval",
                           "Loss, perplexity and bits per byte, over non-overlapping windows.\n");
  option<std::string>(options, "", "checkpoint", "DIR", "Run, checkpoint or Hugging Face folder");
  option<std::vector<std::string>>(options, "", "data", "FILES",
                                   "Text files (bytes) or token shards, comma-separated");
  option<Index>(options, "", "tokens", "N", "Evaluate the first N tokens; 0: all", "0");
  option<Index>(options, "", "seq", "T", "Window length, tokens; 0: the model's, at most 1024",
                "0");
  option<Index>(options, "", "batch", "B", "Windows at a time; the result does not depend on it",
                "8");
  option<std::string>(options, "", "json", "FILE", "Also write the result to FILE");
  threads_option(options);
  const auto a = parse(
      options, argc, argv,
      "  attnres eval --checkpoint runs/quickstart --data data/corpus/austen.txt --tokens 100000\n"
      "  attnres eval --checkpoint runs/100m --data fineweb_val_000000.bin --json result.json");
  if (!a) return 0;
  const std::string folder = required(*a, "checkpoint");
  if (!a->count("data")) throw UsageError("--data is needed");
  const Index batch = (*a)["batch"].as<Index>(), limit = (*a)["tokens"].as<Index>();
  if (batch < 1) throw UsageError("--batch must be at least 1");
  if (limit < 0) throw UsageError("--tokens must be 0 or positive");
  const auto path = resolve_model_folder(folder);
  const auto model = load_model(path, batch, (*a)["seq"].as<Index>());
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
