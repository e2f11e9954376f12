// attnres sample: text from a checkpoint.
#include <cstdio>

#include "train/checkpoint.h"
#include "train/commands/command.h"
#include "train/sampler.h"

namespace attnres {

int sample_command(int argc, char** argv) {
  cxxopts::Options options("attnres sample", "Continue a prompt with a trained model.\n");
  option<std::string>(options, "", "checkpoint", "DIR", "Run, checkpoint or Hugging Face folder");
  option<std::string>(options, "", "prompt", "TEXT", "Text to continue", "It is a truth");
  option<Index>(options, "", "tokens", "N", "Tokens to generate", "400");
  option<double>(options, "", "temperature", "X", "Divides the logits; 0 takes the likeliest token",
                 "0.8");
  option<Index>(options, "", "top-k", "K", "Keep the K likeliest tokens; 0 keeps all", "0");
  option<double>(options, "", "top-p", "P", "Keep the likeliest tokens that reach this probability",
                 "1.0");
  option<std::uint64_t>(options, "", "seed", "S", "Seed of the draws", "1");
  option<std::string>(
      options, "", "tokenizer", "NAME",
      "gpt2, bytes, a tokenizer.json or its folder (default: the checkpoint's; a model "
      "trained on bytes needs none)");
  threads_option(options);
  const auto a =
      parse(options, argc, argv,
            "  attnres sample --checkpoint runs/quickstart --prompt \"Mr. Darcy\" --tokens 600\n"
            "  attnres sample --checkpoint runs/quickstart --temperature 0");
  if (!a) return 0;
  const std::string folder = required(*a, "checkpoint"), prompt = (*a)["prompt"].as<std::string>();
  if (prompt.empty()) throw UsageError("--prompt must not be empty");
  SamplingOptions sampling{(*a)["tokens"].as<Index>(),       (*a)["temperature"].as<double>(),
                           (*a)["top-k"].as<Index>(),        (*a)["top-p"].as<double>(),
                           (*a)["seed"].as<std::uint64_t>(), 0};
  if (sampling.tokens < 0 || sampling.top_k < 0 || sampling.temperature < 0 ||
      !(sampling.top_p > 0))
    throw UsageError("--tokens, --top-k and --temperature must not be negative, --top-p positive");
  const auto path = resolve_model_folder(folder);
  const auto model = load_model(path, 1, 1, Use::inference);
  const Tokenizer tokenizer = model_tokenizer(*a, path, model->config());
  sampling.vocabulary = tokenizer.vocabulary();
  std::printf("%s", prompt.c_str());
  sample(*model, tokenizer.encode(prompt, SpecialTokens::as_tokens), sampling,
         [&](std::int32_t token) {
           if (token == tokenizer.end_of_text()) return false;
           const std::string text = tokenizer.decode({&token, 1});
           std::fwrite(text.data(), 1, text.size(), stdout);
           std::fflush(stdout);
           return true;
         });
  std::printf("\n");
  return 0;
}

}  // namespace attnres
