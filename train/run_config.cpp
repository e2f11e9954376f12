#include "train/run_config.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace attnres {
namespace {

// One list of all fields serves both directions, so they cannot drift apart.
template <class Config, class Visit>
void visit_fields(Config& c, const Visit& visit) {
  visit("data", c.data);
  visit("validation_data", c.validation_data);
  visit("tokenizer", c.tokenizer);
  visit("seed", c.seed);
  visit("positions", c.positions);
  visit("tokens_per_step", c.tokens_per_step);
  visit("micro_sequences", c.micro_sequences);
  visit("beta1", c.adamw.beta1);
  visit("beta2", c.adamw.beta2);
  visit("eps", c.adamw.eps);
  visit("weight_decay", c.adamw.weight_decay);
  visit("clip", c.adamw.clip);
  visit("schedule", c.schedule.shape);
  visit("learning_rate", c.schedule.peak);
  visit("final_fraction", c.schedule.final_fraction);
  visit("decay_fraction", c.schedule.decay_fraction);
  visit("warmup", c.schedule.warmup);
  visit("steps", c.schedule.steps);
  visit("eval_every", c.eval_every);
  visit("eval_tokens", c.eval_tokens);
  visit("save_every", c.save_every);
  visit("keep", c.keep);
  visit("sample_every", c.sample_every);
  visit("sample_tokens", c.sample_tokens);
  visit("prompt", c.prompt);
}

void require(bool holds, const std::string& sentence) {
  if (!holds) throw std::invalid_argument(sentence);
}

}  // namespace

void RunConfig::resolve() {
  require(positions > 0, "the sequence length must be positive");
  require(tokens_per_step > 0 && tokens_per_step % positions == 0,
          std::to_string(tokens_per_step) +
              " tokens per step must be a multiple of the sequence length " +
              std::to_string(positions));
  require(eval_every >= 0 && save_every >= 0 && sample_every >= 0,
          "intervals must be 0 or positive");
  require(keep >= 1, "--keep must be at least 1");
  require(eval_tokens >= 1, "--eval-tokens must be at least 1");
  require(adamw.beta1 >= 0 && adamw.beta1 < 1 && adamw.beta2 >= 0 && adamw.beta2 < 1,
          "betas must lie in [0, 1)");
  require(adamw.eps > 0, "--eps must be positive: the parameters that never move have no moments");
  require(adamw.weight_decay >= 0 && adamw.clip >= 0, "weight decay and clip must not be negative");
  require(!prompt.empty(), "the prompt must not be empty");
  schedule.validate();
  const Index sequences = sequences_per_step();
  if (micro_sequences == 0) {
    micro_sequences = 1;
    for (Index m = 1; m <= sequences && m * positions <= 2048; ++m)
      if (sequences % m == 0) micro_sequences = m;
  }
  require(micro_sequences > 0 && sequences % micro_sequences == 0,
          "a micro-batch of " + std::to_string(micro_sequences) + " sequences must divide the " +
              std::to_string(sequences) + " sequences of a step");
}

nlohmann::json to_json(const RunConfig& config) {
  nlohmann::json json;
  visit_fields(config, [&](const char* key, const auto& value) { json[key] = value; });
  return json;
}

RunConfig run_config_from_json(const nlohmann::json& json) {
  RunConfig config;
  visit_fields(config, [&](const char* key, auto& value) {
    try {
      json.at(key).get_to(value);
    } catch (const nlohmann::json::exception&) {
      throw std::runtime_error(std::string("run.json: config.") + key + " is missing or malformed");
    }
  });
  return config;
}

}  // namespace attnres
