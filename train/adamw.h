// AdamW with global-norm clipping, over all parameters at once.
// Loshchilov & Hutter 2017, "Decoupled Weight Decay Regularization", arXiv 1711.05101, algorithm 2.
#pragma once

#include "reference/parameters.h"

namespace attnres {

struct AdamWConfig {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  ///< on matrices and embeddings; not on gains, queries, gates
  double clip = 1.0;          ///< largest global gradient norm; 0 does not clip
};

/// First and second moments, in the layout of the parameters.
struct AdamWState {
  explicit AdamWState(Index size) : m(Vector<float>::Zero(size)), v(Vector<float>::Zero(size)) {}
  Vector<float> m, v;
};

/// The Euclidean norm of all gradients, in double: each tile's sum goes to `tile_sums` (resized
/// when first used), and those are added in order, so the bits do not depend on the threads.
double gradient_norm(const Vector<float>& gradients, Vector<double>& tile_sums);

/// Step t = 1, 2, ...:  g <- g min(1, clip/|g|);  m <- b1 m + (1-b1) g;  v <- b2 v + (1-b2) g^2;
///   p <- p - lr (m^ / (sqrt(v^) + eps) + weight_decay p),   m^ = m/(1-b1^t), v^ = v/(1-b2^t).
/// `norm` is gradient_norm of the same gradients.
void adamw_step(const AdamWConfig& config, double learning_rate, Index t, double norm,
                const Vector<float>& gradients, Parameters<float>& parameters, AdamWState& state);

}  // namespace attnres
