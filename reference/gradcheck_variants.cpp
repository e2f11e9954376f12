// Every variant of the whole model against finite differences, at random queries and gains: zero
// queries make every routing weight equal and would hide a wrong backward pass.
#include <random>

#include "reference/gradcheck.h"
#include "reference/transformer.h"

namespace attnres {
namespace {

struct Variant {
  std::string name;
  DepthMixing mixing;
  bool qk_norm = false, tied = true;
};

ModelConfig small_model(const Variant& variant) {
  ModelConfig c;
  c.hidden_size = 12;
  c.intermediate_size = 10;
  c.num_hidden_layers = 3;
  c.num_attention_heads = 2;
  c.num_key_value_heads = 1;
  c.head_dim = 4;
  c.vocab_size = 7;
  c.qk_norm = variant.qk_norm;
  c.tie_word_embeddings = variant.tied;
  c.depth_mixing = variant.mixing;
  c.validate();
  return c;
}

// Weights large enough that every path carries signal, gates away from zero, gains around one.
void randomise_everything(Parameters<double>& parameters) {
  initialise(parameters, 11);
  randomise_queries(parameters, 12);
  std::mt19937_64 engine(13);
  std::uniform_real_distribution<double> uniform;
  for (const auto& spec : parameters.layout().specs) {
    auto values = parameters.values().segment(spec.offset, spec.size());
    if (spec.decays()) values *= 20;
    if (spec.kind == ParameterKind::gain || spec.kind == ParameterKind::gate)
      for (auto& value : values) value = 0.8 + 0.4 * uniform(engine);
  }
}

std::vector<GradcheckResult> check_variant(const Variant& variant,
                                           const GradcheckOptions& options) {
  const ModelConfig config = small_model(variant);
  Parameters<double> parameters(config), gradients(config);
  randomise_everything(parameters);
  const std::vector<std::int32_t> tokens = {1, 3, 5, 0, 6, 2, 2, 4, 3, 1};
  const std::vector<std::int32_t> targets = {3, 5, 0, 6, 1, 2, 4, 3, 1, 0};
  const TokenBatch batch{2, 5, tokens, targets};
  TransformerState<double> state(config, 2, 5);
  transformer_loss_and_gradients(parameters, batch, 1.0 / 10, state, gradients);

  std::vector<GradcheckTensor> tensors;
  for (const auto& spec : parameters.layout().specs)
    tensors.push_back({spec.name, parameters.values().data() + spec.offset,
                       gradients.values().data() + spec.offset, spec.size()});
  const auto loss = [&] { return transformer_loss(parameters, batch, state); };
  auto results = gradcheck(variant.name, loss, tensors, options);
  results.push_back(gradcheck_directions(variant.name, loss, tensors, 8, 14, options));
  return results;
}

}  // namespace

std::vector<GradcheckResult> gradcheck_variants(const GradcheckOptions& options) {
  using Kind = DepthMixing::Kind;
  const Variant variants[] = {
      {"residual", {Kind::residual}},
      {"residual, QK norm, untied head", {Kind::residual}, true, false},
      {"AttnRes", {Kind::attention}},
      {"block AttnRes, blocks of 4", {Kind::attention, 1, 4}},
      {"MHAR, 3 heads", {Kind::attention, 3}},
      {"MHAR, 3 heads, groups of 3", {Kind::attention, 3, 1, 0, 3}},
      {"block MHAR, 2 heads, blocks of 4", {Kind::attention, 2, 4}},
      {"window AttnRes, 2 sources", {Kind::attention, 1, 1, 2}},
      {"delta MHAR, 2 heads", {Kind::delta, 2}},
      {"delta block MHAR, 2 heads, blocks of 4", {Kind::delta, 2, 4}},
  };
  std::vector<GradcheckResult> results;
  for (const auto& variant : variants)
    for (auto& result : check_variant(variant, options)) results.push_back(std::move(result));
  return results;
}

}  // namespace attnres
