// attnres sample: text from a checkpoint.
#include <cstdio>

#include "data/byte_tokenizer.h"
#include "reference/parallel.h"
#include "train/commands/command.h"
#include "train/sampler.h"

namespace attnres {

int sample_command(int argc, char** argv) {
  cxxopts::Options options("attnres sample", "Continue a prompt with a trained model.\n");
  options.set_width(100);
  using cxxopts::value;
  options.add_options()("checkpoint", "Run, checkpoint or Hugging Face folder",
                        value<std::string>(), "DIR")(
      "prompt", "Text to continue", value<std::string>()->default_value("It is a truth"), "TEXT")(
      "tokens", "Tokens to generate", value<Index>()->default_value("400"), "N")(
      "temperature", "Divides the logits; 0 takes the likeliest token",
      value<double>()->default_value("0.8"),
      "X")("top-k", "Keep the k likeliest tokens; 0 keeps all", value<Index>()->default_value("0"),
           "K")("top-p", "Keep the likeliest tokens that reach this probability",
                value<double>()->default_value("1.0"),
                "P")("seed", "Seed of the draws", value<std::uint64_t>()->default_value("1"), "S")(
      "threads", "CPU threads; 0: all cores", value<int>()->default_value("0"), "N");
  const auto a =
      parse(options, argc, argv,
            "  attnres sample --checkpoint runs/quickstart --prompt \"Mr. Darcy\" --tokens 600\n"
            "  attnres sample --checkpoint runs/quickstart --temperature 0");
  if (!a) return 0;
  set_threads((*a)["threads"].as<int>());
  const std::string folder = required(*a, "checkpoint"), prompt = (*a)["prompt"].as<std::string>();
  if (prompt.empty()) throw UsageError("--prompt must not be empty");
  SamplingOptions sampling{(*a)["tokens"].as<Index>(),       (*a)["temperature"].as<double>(),
                           (*a)["top-k"].as<Index>(),        (*a)["top-p"].as<double>(),
                           (*a)["seed"].as<std::uint64_t>(), ByteTokenizer::kVocabulary};
  const auto model = load_model(folder, 1, 1);
  if (tokenizer_of(folder, model->config()) != "bytes")
    throw std::runtime_error(folder +
                             ": was not trained on bytes; sample writes text for byte models");
  std::printf("%s", prompt.c_str());
  sample(*model, ByteTokenizer::encode(prompt), sampling, [](std::int32_t token) {
    std::printf("%s", ByteTokenizer::decode({&token, 1}).c_str());
    std::fflush(stdout);
    return token != ByteTokenizer::kEndOfDocument;
  });
  std::printf("\n");
  return 0;
}

}  // namespace attnres
