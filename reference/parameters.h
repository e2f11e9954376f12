// The model's parameters by name: one flat array, views into it, and how each tensor is initialised
// and decayed.  Gradients and optimizer moments use the same layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reference/config.h"
#include "reference/depth/mixer.h"

namespace attnres {

enum class ParameterKind {
  embedding,  ///< token table and untied head
  matrix,     ///< weights of products
  gain,       ///< RMSNorm gains, 1 at the start
  query,      ///< depth queries q, 0 at the start
  key_gain,   ///< depth key-norm gains g, 1 at the start
  gate,       ///< delta gates alpha, 0 at the start
};
std::string to_string(ParameterKind kind);

struct ParameterSpec {
  std::string name;  ///< Hugging Face's Llama names; math.md section 4 for the depth parameters
  std::vector<Index> shape;
  ParameterKind kind;
  Index offset = 0;  ///< of the first value in the flat array

  Index size() const;
  /// Weight decay applies to matrices and embeddings, not to gains, queries and gates.
  bool decays() const;
  /// Depth queries, key gains and gates: what a residual model does not have.
  bool routes() const;
};

/// Every parameter of a model in a fixed order: embedding, layers, final norm, readout, head.
struct ParameterLayout {
  explicit ParameterLayout(const ModelConfig& config);

  std::vector<ParameterSpec> specs;
  Index size = 0;  ///< values in all

  const ParameterSpec* find(const std::string& name) const;
};

template <class Scalar>
struct LayerParameters {
  VectorView<Scalar> input_layernorm, post_attention_layernorm;
  MatrixView<Scalar> q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj;
  VectorView<Scalar> q_norm, k_norm;  ///< empty without qk_norm
};

/// One value per parameter: the weights, or their gradients.  Not copyable: views point inside.
template <class Scalar>
class Parameters {
 public:
  explicit Parameters(const ModelConfig& config);
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  Vector<Scalar>& values() { return values_; }
  const Vector<Scalar>& values() const { return values_; }
  /// A tensor as a matrix of its first dimension by the rest.
  MatrixView<Scalar> tensor(const ParameterSpec& spec);
  ConstMatrixView<Scalar> tensor(const ParameterSpec& spec) const;

  const MatrixView<Scalar>& embed_tokens() const { return embed_tokens_; }
  /// The classifier [V, D]: embed_tokens itself when tied.
  const MatrixView<Scalar>& head() const { return head_; }
  const VectorView<Scalar>& norm() const { return norm_; }
  const LayerParameters<Scalar>& layer(Index b) const { return layers_[b]; }
  /// Site l = 1..L+1 at index l; empty views where a site has no such parameter.
  const std::vector<SiteParameters<Scalar>>& sites() const { return sites_; }

 private:
  MatrixView<Scalar> matrix(const std::string& name);
  VectorView<Scalar> vector(const std::string& name);

  ModelConfig config_;
  ParameterLayout layout_;
  Vector<Scalar> values_;
  MatrixView<Scalar> embed_tokens_, head_;
  VectorView<Scalar> norm_;
  std::vector<LayerParameters<Scalar>> layers_;
  std::vector<SiteParameters<Scalar>> sites_;
};

/// Matrices and embeddings ~ N(0, 0.02^2), gains 1, queries and gates 0; each tensor draws from its
/// own stream, seeded by (seed, name), so two variants of a model share what they have in common.
template <class Scalar>
void initialise(Parameters<Scalar>& parameters, std::uint64_t seed);

/// Replaces the zero queries by N(0, 4/sqrt(D)) (standard deviation 2 D^(-1/4)) and the key gains
/// by U(0.8, 1.2): where gradients are to be checked, zero queries hide mistakes.
template <class Scalar>
void randomise_queries(Parameters<Scalar>& parameters, std::uint64_t seed);

}  // namespace attnres
