// attnres convert: a residual model becomes the start of a gated delta model with the same output.
#include <cstdio>

#include "train/checkpoint.h"
#include "train/commands/command.h"
#include "train/presets.h"

namespace attnres {

int convert_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres convert",
      "Add gated depth attention to a residual model. Its gates and queries start at zero, so\n"
      "the output is the same, bit for bit; training opens the gates.\n");
  option<std::string>(options, "", "checkpoint", "DIR",
                      "Residual model: run, checkpoint or Hugging Face folder");
  option<std::string>(options, "", "to", "NAME", "Form to convert to: delta-mhar", "delta-mhar");
  option<Index>(options, "", "depth-heads", "H", "Depth heads (default: the number of KV heads)");
  option<Index>(options, "", "depth-blocks", "N",
                "Blocks of sublayers (default: every sublayer is a source of its own)");
  option<std::string>(options, "", "out", "DIR", "Folder to write; must not hold a model yet");
  const auto a =
      parse(options, argc, argv,
            "  attnres convert --checkpoint SmolLM2-135M --out smollm2-delta\n"
            "  attnres train --init smollm2-delta --data \"shards/*.bin\" --out runs/delta");
  if (!a) return 0;
  const auto from = resolve_model_folder(required(*a, "checkpoint"));
  const std::filesystem::path out = required(*a, "out");
  ModelConfig config = load_config(from);
  MixingOptions mixing;
  mixing.name = (*a)["to"].as<std::string>();
  if (mixing.name != "delta-mhar")
    throw UsageError("--to is \"" + mixing.name +
                     "\"; only delta-mhar keeps the output of the model that it is made from");
  if (a->count("depth-heads")) mixing.depth_heads = (*a)["depth-heads"].as<Index>();
  if (a->count("depth-blocks")) mixing.depth_blocks = (*a)["depth-blocks"].as<Index>();
  if (config.depth_mixing.kind != DepthMixing::Kind::residual)
    throw std::runtime_error(from.string() + ": is no residual model, its depth_mixing is \"" +
                             to_string(config.depth_mixing.kind) + "\"");
  try {
    apply_mixing(mixing, config);
    config.validate();
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  check_holds_no_model(out);
  Parameters<float> parameters(config);
  initialise(parameters, 1);  // the new queries, gains and gates: 0, 1 and 0
  load_parameters(from, parameters, true);
  save_model(out, parameters);
  copy_tokenizer(from, out);
  std::printf("%s: delta-mhar with %ld depth heads; the same output until it is trained\n",
              out.c_str(), long(config.depth_mixing.heads));
  return 0;
}

}  // namespace attnres
