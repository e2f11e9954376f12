// attnres inspect: what a model's depth attention has learned.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "data/files.h"
#include "train/checkpoint.h"
#include "train/commands/command.h"
#include "train/depth_report.h"
#include "train/heat_map.h"

namespace attnres {

int inspect_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres inspect", "Routing heat map and statistics by site and depth, measured on data.\n");
  option<std::string>(options, "", "checkpoint", "DIR", "Run, checkpoint or Hugging Face folder");
  option<std::vector<std::string>>(options, "", "data", "FILES",
                                   "Text files (bytes) or token shards, comma-separated (default: "
                                   "the run's own, else the bundled corpus)");
  option<Index>(options, "", "batches", "N", "Batches to measure on, from the validation part",
                "8");
  option<Index>(options, "", "batch", "B", "Sequences per batch", "8");
  option<Index>(options, "", "seq", "T", "Sequence length, tokens; 0: the model's, at most 1024",
                "0");
  option<std::string>(options, "", "svg", "FILE",
                      "Draw the heat map and the statistics by depth into FILE");
  option<std::string>(options, "", "json", "FILE", "Write everything to FILE");
  threads_option(options);
  const auto a =
      parse(options, argc, argv,
            "  attnres inspect --checkpoint runs/quickstart\n"
            "  attnres inspect --checkpoint runs/quickstart --svg routing.svg --json routing.json");
  if (!a) return 0;
  const std::string folder = required(*a, "checkpoint");
  const Index batch = (*a)["batch"].as<Index>(), batches = (*a)["batches"].as<Index>();
  if (batch < 1 || batches < 1) throw UsageError("--batch and --batches must be at least 1");
  const auto path = resolve_model_folder(folder);
  const auto model = load_model(path, batch, (*a)["seq"].as<Index>(), Use::training);
  auto files = files_or_corpus(*a, "data");
  std::vector<std::filesystem::path> validation;
  if (const auto run = run_config_of(path); run && !a->count("data")) {
    files.assign(run->data.begin(), run->data.end());
    validation.assign(run->validation_data.begin(), run->validation_data.end());
  }
  const DataSplit data = load_data(files, validation, std::int32_t(model->config().vocab_size));
  check_tokenizer(data, files[0], path, model->config());
  const Windows windows(data.validation, std::size_t(model->state().shape.positions));
  const DepthReport report = inspect_depth(*model, windows, std::size_t(batches));
  std::printf("%s\n%s", depth_table(report).c_str(),
              heat_map_text(report, ::isatty(STDOUT_FILENO) == 1).c_str());
  if (a->count("svg"))
    write_file_atomically((*a)["svg"].as<std::string>(),
                          depth_svg(report, "Depth report of " + folder));
  if (a->count("json"))
    write_file_atomically((*a)["json"].as<std::string>(), depth_json(report).dump(2) + "\n");
  return 0;
}

}  // namespace attnres
