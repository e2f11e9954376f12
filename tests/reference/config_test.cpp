// config.json: what is read, and what is refused by name.
#include "reference/config.h"

#include <nlohmann/json.hpp>

#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;
using nlohmann::json;

namespace {

json valid() { return config_to_json(small_config({DepthMixing::Kind::attention, 2, 3})); }

std::string refusal(const std::function<void(json&)>& change) {
  json object = valid();
  change(object);
  return error_of([&] { config_from_json(object); });
}

}  // namespace

TEST_CASE("a config survives the way through JSON") {
  for (const DepthMixing& mixing : {DepthMixing{}, DepthMixing{DepthMixing::Kind::attention, 3, 2},
                                    DepthMixing{DepthMixing::Kind::delta, 2, 1, 4, 3}}) {
    const json object = config_to_json(small_config(mixing));
    CHECK(config_to_json(config_from_json(object)) == object);
  }
}

TEST_CASE("a plain Llama config.json is a residual model, with Hugging Face's defaults") {
  const json object = {{"model_type", "llama"},    {"hidden_size", 64},
                       {"intermediate_size", 128}, {"num_hidden_layers", 2},
                       {"num_attention_heads", 4}, {"vocab_size", 100},
                       {"rope_scaling", nullptr},  {"attention_bias", false}};
  const ModelConfig c = config_from_json(object);
  CHECK(c.depth_mixing.kind == DepthMixing::Kind::residual);
  CHECK(c.num_key_value_heads == 4);
  CHECK(c.head_dim == 16);
  CHECK(!c.tie_word_embeddings);
  CHECK(c.rope_theta == 10000.0);
}

TEST_CASE("rope_theta is found where newer files keep it") {
  json object = valid();
  object.erase("rope_theta");
  object["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 500000.0}};
  CHECK(config_from_json(object).rope_theta == 500000.0);
}

TEST_CASE("what does not fit or is not computed is refused in one sentence") {
  CHECK(contains(refusal([](json& o) { o["depth_mixing"]["heads"] = 5; }),
                 "hidden_size 24 is not divisible by depth_mixing.heads 5"));
  CHECK(contains(refusal([](json& o) { o.erase("vocab_size"); }), "needs \"vocab_size\""));
  CHECK(contains(refusal([](json& o) { o["hidden_size"] = "big"; }),
                 "\"hidden_size\" must be a whole number, not \"big\""));
  CHECK(contains(refusal([](json& o) { o["hidden_size"] = -4; }), "must be positive"));
  CHECK(contains(refusal([](json& o) { o["num_key_value_heads"] = 3; }), "multiple"));
  CHECK(contains(refusal([](json& o) { o["head_dim"] = 7; }), "even"));
  CHECK(contains(refusal([](json& o) { o["rope_scaling"] = {{"factor", 8}}; }), "rope_scaling"));
  CHECK(contains(refusal([](json& o) { o["rope_parameters"] = {{"rope_type", "yarn"}}; }), "yarn"));
  CHECK(contains(refusal([](json& o) { o["attention_bias"] = true; }), "attention_bias"));
  CHECK(contains(refusal([](json& o) { o["hidden_act"] = "gelu"; }), "gelu"));
  CHECK(contains(refusal([](json& o) { o["model_type"] = "gpt2"; }), "gpt2"));
  CHECK(contains(refusal([](json& o) { o["depth_mixing"]["kind"] = "highway"; }), "highway"));
  CHECK(contains(refusal([](json& o) { o["depth_mixing"]["head"] = 2; }), "unknown key \"head\""));
  CHECK(contains(error_of([] { config_from_json(json::array()); }), "not a JSON object"));
}

TEST_CASE("FLOPs per token: six per parameter of a product, and causal attention") {
  const ModelConfig c = small_config();
  // per layer: q and o 24 x 24, k and v 12 x 24, three MLP matrices 20 x 24; head 17 x 24
  const double products = 3 * (2 * 24 * 24 + 2 * 12 * 24 + 3 * 20 * 24) + 17 * 24;
  CHECK(training_flops_per_token(c, 10) == 6 * products + 6 * 10 * 24 * 3);
}
