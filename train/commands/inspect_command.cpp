// attnres inspect: what a model's depth attention has learned.
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "reference/parallel.h"
#include "train/commands/command.h"
#include "train/depth_report.h"
#include "train/files.h"
#include "train/heat_map.h"

namespace attnres {

int inspect_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres inspect", "Routing heat map and statistics by site and depth, measured on data.\n");
  options.set_width(100);
  using cxxopts::value;
  options.add_options()("checkpoint", "Run, checkpoint or Hugging Face folder",
                        value<std::string>(), "DIR")(
      "data", "Text files (bytes) or token shards, comma-separated (default: the bundled corpus)",
      value<std::vector<std::string>>(),
      "FILES")("batches", "Batches to measure on, from the validation part",
               value<Index>()->default_value("8"),
               "N")("batch", "Sequences per batch", value<Index>()->default_value("8"), "B")(
      "seq", "Sequence length, tokens; 0: the model's, at most 1024",
      value<Index>()->default_value("0"),
      "T")("svg", "Write the heat map to FILE", value<std::string>(), "FILE")(
      "json", "Write everything to FILE", value<std::string>(), "FILE")(
      "threads", "CPU threads; 0: all cores", value<int>()->default_value("0"), "N");
  const auto a =
      parse(options, argc, argv,
            "  attnres inspect --checkpoint runs/quickstart\n"
            "  attnres inspect --checkpoint runs/quickstart --svg routing.svg --json routing.json");
  if (!a) return 0;
  set_threads((*a)["threads"].as<int>());
  const std::string folder = required(*a, "checkpoint");
  const Index batch = (*a)["batch"].as<Index>(), batches = (*a)["batches"].as<Index>();
  if (batch < 1 || batches < 1) throw UsageError("--batch and --batches must be at least 1");
  const auto model = load_model(folder, batch, (*a)["seq"].as<Index>());
  const auto names = a->count("data") ? (*a)["data"].as<std::vector<std::string>>()
                                      : std::vector<std::string>{ATTNRES_CORPUS};
  const DataSplit data =
      load_data({names.begin(), names.end()}, {}, std::int32_t(model->config().vocab_size));
  if (data.vocabulary > model->config().vocab_size)
    throw std::runtime_error(names[0] + ": uses ids that the model's vocabulary of " +
                             std::to_string(model->config().vocab_size) + " does not have");
  const Windows windows(data.validation, std::size_t(model->state().shape.positions));
  const DepthReport report = inspect_depth(*model, windows, std::size_t(batches));
  std::printf("%s\n%s", depth_table(report).c_str(),
              heat_map_text(report, ::isatty(STDOUT_FILENO) == 1).c_str());
  if (a->count("svg")) {
    const std::string svg = heat_map_svg(report, "Routing weights of " + folder);
    if (svg.empty()) throw std::runtime_error(folder + ": a residual model has no routing to draw");
    write_file_atomically((*a)["svg"].as<std::string>(), svg);
  }
  if (a->count("json"))
    write_file_atomically((*a)["json"].as<std::string>(), depth_json(report).dump(2) + "\n");
  return 0;
}

}  // namespace attnres
