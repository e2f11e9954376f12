// attnres export: the weights of a run as a model folder that other programs load.
#include <cstdio>

#include "train/checkpoint.h"
#include "train/commands/command.h"

namespace attnres {

int export_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres export",
      "Write config.json and model.safetensors in Hugging Face's names, without the optimizer.\n"
      "transformers loads residual models as LlamaForCausalLM (with QK norm: Qwen3ForCausalLM);\n"
      "depth attention adds tensors of its own, which docs/architecture.md lists.\n");
  option<std::string>(options, "", "checkpoint", "DIR", "Run, checkpoint or Hugging Face folder");
  option<std::string>(options, "", "out", "DIR", "Folder to write; must not hold a model yet");
  const auto a =
      parse(options, argc, argv, "  attnres export --checkpoint runs/residual --out exported");
  if (!a) return 0;
  const auto from = resolve_model_folder(required(*a, "checkpoint"));
  const std::filesystem::path out = required(*a, "out");
  check_holds_no_model(out);
  Parameters<float> parameters(load_config(from));
  load_parameters(from, parameters);
  save_model(out, parameters);
  copy_tokenizer(from, out);
  std::printf("%ld parameters of %s written to %s\n", long(parameters.layout().size), from.c_str(),
              out.c_str());
  return 0;
}

}  // namespace attnres
