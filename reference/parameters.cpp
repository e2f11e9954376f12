#include "reference/parameters.h"

#include <numeric>
#include <random>

#include "reference/fnv1a.h"
#include "reference/instantiate.h"

namespace attnres {

std::string to_string(ParameterKind kind) {
  switch (kind) {
    case ParameterKind::embedding:
      return "embedding";
    case ParameterKind::matrix:
      return "matrix";
    case ParameterKind::gain:
      return "norm gain";
    case ParameterKind::query:
      return "depth query";
    case ParameterKind::key_gain:
      return "depth key gain";
    case ParameterKind::gate:
      return "depth gate";
  }
  return "?";
}

Index ParameterSpec::size() const {
  return std::accumulate(shape.begin(), shape.end(), Index(1), std::multiplies<>());
}

bool ParameterSpec::decays() const {
  return kind == ParameterKind::matrix || kind == ParameterKind::embedding;
}

bool ParameterSpec::routes() const {
  return kind == ParameterKind::query || kind == ParameterKind::key_gain ||
         kind == ParameterKind::gate;
}

ParameterLayout::ParameterLayout(const ModelConfig& c) {
  const Index D = c.hidden_size, F = c.intermediate_size, H = c.depth_mixing.heads;
  const Index q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  const bool routes = c.depth_mixing.kind != DepthMixing::Kind::residual;
  const bool delta = c.depth_mixing.kind == DepthMixing::Kind::delta;
  const auto add = [&](std::string name, std::vector<Index> shape, ParameterKind kind) {
    specs.push_back({std::move(name), std::move(shape), kind, size});
    size += specs.back().size();
  };
  const auto add_site = [&](const std::string& site, bool gated) {
    add(site + "_proj.weight", {H, D / H}, ParameterKind::query);
    add(site + "_norm.weight", {D}, ParameterKind::key_gain);
    if (gated) add(site + "_gate", {1}, ParameterKind::gate);
  };

  add("model.embed_tokens.weight", {c.vocab_size, D}, ParameterKind::embedding);
  for (Index b = 0; b < c.num_hidden_layers; ++b) {
    const std::string layer = "model.layers." + std::to_string(b) + ".";
    if (routes) add_site(layer + "self_attention_res", delta);
    add(layer + "input_layernorm.weight", {D}, ParameterKind::gain);
    add(layer + "self_attn.q_proj.weight", {q, D}, ParameterKind::matrix);
    add(layer + "self_attn.k_proj.weight", {kv, D}, ParameterKind::matrix);
    add(layer + "self_attn.v_proj.weight", {kv, D}, ParameterKind::matrix);
    add(layer + "self_attn.o_proj.weight", {D, q}, ParameterKind::matrix);
    if (c.qk_norm) {
      add(layer + "self_attn.q_norm.weight", {c.head_dim}, ParameterKind::gain);
      add(layer + "self_attn.k_norm.weight", {c.head_dim}, ParameterKind::gain);
    }
    if (routes) add_site(layer + "mlp_res", delta);
    add(layer + "post_attention_layernorm.weight", {D}, ParameterKind::gain);
    add(layer + "mlp.gate_proj.weight", {F, D}, ParameterKind::matrix);
    add(layer + "mlp.up_proj.weight", {F, D}, ParameterKind::matrix);
    add(layer + "mlp.down_proj.weight", {D, F}, ParameterKind::matrix);
  }
  if (routes && !delta) add_site("model.output_attn_res", false);
  add("model.norm.weight", {D}, ParameterKind::gain);
  if (!c.tie_word_embeddings) add("lm_head.weight", {c.vocab_size, D}, ParameterKind::embedding);
}

const ParameterSpec* ParameterLayout::find(const std::string& name) const {
  for (const auto& spec : specs)
    if (spec.name == name) return &spec;
  return nullptr;
}

template <class Scalar>
MatrixView<Scalar> Parameters<Scalar>::tensor(const ParameterSpec& spec) {
  return {values_.data() + spec.offset, spec.shape[0], spec.size() / spec.shape[0]};
}

template <class Scalar>
ConstMatrixView<Scalar> Parameters<Scalar>::tensor(const ParameterSpec& spec) const {
  return {values_.data() + spec.offset, spec.shape[0], spec.size() / spec.shape[0]};
}

template <class Scalar>
MatrixView<Scalar> Parameters<Scalar>::matrix(const std::string& name) {
  return tensor(*layout_.find(name));
}

template <class Scalar>
VectorView<Scalar> Parameters<Scalar>::vector(const std::string& name) {
  const ParameterSpec* spec = layout_.find(name);
  if (spec == nullptr) return {nullptr, 0};
  return {values_.data() + spec->offset, spec->size()};
}

template <class Scalar>
Parameters<Scalar>::Parameters(const ModelConfig& config)
    : config_(config),
      layout_(config),
      values_(Vector<Scalar>::Zero(layout_.size)),
      embed_tokens_(matrix("model.embed_tokens.weight")),
      head_(config.tie_word_embeddings ? embed_tokens_ : matrix("lm_head.weight")),
      norm_(vector("model.norm.weight")) {
  const auto site = [&](const std::string& name) {
    const VectorView<Scalar> gate = vector(name + "_gate");
    return SiteParameters<Scalar>{vector(name + "_proj.weight"), vector(name + "_norm.weight"),
                                  gate.size() > 0 ? const_cast<Scalar*>(gate.data()) : nullptr};
  };
  sites_.push_back({});
  for (Index b = 0; b < config.num_hidden_layers; ++b) {
    const std::string layer = "model.layers." + std::to_string(b) + ".";
    sites_.push_back(site(layer + "self_attention_res"));
    sites_.push_back(site(layer + "mlp_res"));
    layers_.push_back(
        {vector(layer + "input_layernorm.weight"),
         vector(layer + "post_attention_layernorm.weight"),
         matrix(layer + "self_attn.q_proj.weight"), matrix(layer + "self_attn.k_proj.weight"),
         matrix(layer + "self_attn.v_proj.weight"), matrix(layer + "self_attn.o_proj.weight"),
         matrix(layer + "mlp.gate_proj.weight"), matrix(layer + "mlp.up_proj.weight"),
         matrix(layer + "mlp.down_proj.weight"), vector(layer + "self_attn.q_norm.weight"),
         vector(layer + "self_attn.k_norm.weight")});
  }
  sites_.push_back(site("model.output_attn_res"));
}

namespace {

// So that a tensor's stream depends on its name and not on its place in the layout.
std::uint64_t hash_name(const std::string& name) {
  Fnv1a hash;
  hash.add(std::as_bytes(std::span(name)));
  return hash.value();
}

// std::mt19937_64 is exact everywhere; std::normal_distribution is not, hence Box & Muller 1958.
class Normal {
 public:
  Normal(std::uint64_t seed, const std::string& name) {
    const std::uint64_t h = hash_name(name);
    std::seed_seq sequence{std::uint32_t(seed), std::uint32_t(seed >> 32), std::uint32_t(h),
                           std::uint32_t(h >> 32)};
    engine_.seed(sequence);
  }
  double uniform() { return double(engine_() >> 11) * 0x1p-53; }
  double operator()() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * 3.14159265358979323846 * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

template <class Scalar>
void initialise(Parameters<Scalar>& parameters, std::uint64_t seed) {
  for (const auto& spec : parameters.layout().specs) {
    auto values = parameters.values().segment(spec.offset, spec.size());
    switch (spec.kind) {
      case ParameterKind::embedding:
      case ParameterKind::matrix: {
        Normal normal(seed, spec.name);
        for (auto& value : values) value = Scalar(0.02 * normal());
        break;
      }
      case ParameterKind::gain:
      case ParameterKind::key_gain:
        values.setOnes();
        break;
      case ParameterKind::query:
      case ParameterKind::gate:
        values.setZero();
        break;
    }
  }
}

template <class Scalar>
void randomise_queries(Parameters<Scalar>& parameters, std::uint64_t seed) {
  const double deviation = std::sqrt(4.0 / std::sqrt(double(parameters.config().hidden_size)));
  for (const auto& spec : parameters.layout().specs) {
    auto values = parameters.values().segment(spec.offset, spec.size());
    Normal normal(seed, spec.name);
    if (spec.kind == ParameterKind::query)
      for (auto& value : values) value = Scalar(deviation * normal());
    if (spec.kind == ParameterKind::key_gain)
      for (auto& value : values) value = Scalar(0.8 + 0.4 * normal.uniform());
  }
}

#define INSTANTIATE(S)                                        \
  template class Parameters<S>;                               \
  template void initialise<S>(Parameters<S>&, std::uint64_t); \
  template void randomise_queries<S>(Parameters<S>&, std::uint64_t);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
