// attnres init: a fresh model folder from a config.json.
#include <cstdio>

#include "data/files.h"
#include "train/checkpoint.h"
#include "train/commands/command.h"

namespace attnres {

int init_command(int argc, char** argv) {
  cxxopts::Options options("attnres init",
                           "Write config.json and freshly drawn model.safetensors.\n");
  option<std::string>(options, "", "config", "FILE", "Model shape, with vocab_size");
  option<std::string>(options, "", "out", "DIR", "Folder to write; must not hold a model yet");
  option<std::uint64_t>(options, "", "seed", "S", "Seed of the weights", "1");
  flag(options, "", "random-queries",
       "Depth queries ~ N(0, 4/sqrt(D)) and key gains ~ U(0.8, 1.2) instead of 0 and 1");
  const auto a = parse(options, argc, argv,
                       "  attnres init --config model.json --out model\n"
                       "  attnres init --config model.json --out model --seed 7 --random-queries");
  if (!a) return 0;
  const std::filesystem::path config_path = required(*a, "config"), out = required(*a, "out");
  const ModelConfig config = load_config_file(config_path);
  check_holds_no_model(out);
  const std::uint64_t seed = (*a)["seed"].as<std::uint64_t>();
  Parameters<float> parameters(config);
  initialise(parameters, seed);
  if (a->count("random-queries")) randomise_queries(parameters, seed + 1);
  save_model(out, parameters);
  std::printf("%ld parameters written to %s\n", long(parameters.layout().size), out.c_str());
  return 0;
}

}  // namespace attnres
