#include "reference/transformer.h"

#include <stdexcept>

#include "reference/cross_entropy.h"
#include "reference/embedding.h"
#include "reference/instantiate.h"
#include "reference/linear.h"
#include "reference/rms_norm.h"
#include "reference/swiglu.h"

namespace attnres {
namespace {

// A [N, heads*d] array as one head per row, [N*heads, d]: heads are contiguous slices.
template <class Scalar>
MatrixView<Scalar> by_head(Matrix<Scalar>& x, Index head_dim) {
  return {x.data(), x.size() / head_dim, head_dim};
}

// output = Attention(RMSNorm(input)) W_o
template <class Scalar>
void attention_sublayer_forward(const LayerParameters<Scalar>& layer,
                                TransformerState<Scalar>& state,
                                AttentionSublayerState<Scalar>& s) {
  const Index T = state.shape.positions, d = state.shape.head_dim;
  const Scalar eps = Scalar(state.config.rms_norm_eps);
  rms_norm_forward<Scalar>(s.input, layer.input_layernorm, eps, s.normed, s.rstd);
  linear_forward<Scalar>(s.normed, layer.q_proj, s.query);
  linear_forward<Scalar>(s.normed, layer.k_proj, s.key);
  linear_forward<Scalar>(s.normed, layer.v_proj, s.value);
  if (state.config.qk_norm) {
    s.raw_query = s.query;
    s.raw_key = s.key;
    rms_norm_forward<Scalar>(by_head(s.raw_query, d), layer.q_norm, eps, by_head(s.query, d),
                             s.query_rstd);
    rms_norm_forward<Scalar>(by_head(s.raw_key, d), layer.k_norm, eps, by_head(s.key, d),
                             s.key_rstd);
  }
  rotary_forward<Scalar>(s.query, T, state.rotary);
  rotary_forward<Scalar>(s.key, T, state.rotary);
  sequence_attention_forward<Scalar>(state.shape, s.query, s.key, s.value, s.context,
                                     s.log_sum_exp);
  linear_forward<Scalar>(s.context, layer.o_proj, state.output);
}

// From state.output = dLoss/doutput to state.dnormed = dLoss/dinput, line by line in reverse.
template <class Scalar>
void attention_sublayer_backward(const LayerParameters<Scalar>& layer,
                                 const LayerParameters<Scalar>& gradient,
                                 TransformerState<Scalar>& state,
                                 AttentionSublayerState<Scalar>& s) {
  const Index T = state.shape.positions, d = state.shape.head_dim;
  linear_backward_weight<Scalar>(state.output, s.context, gradient.o_proj);
  linear_backward_input<Scalar>(state.output, layer.o_proj, state.dcontext);
  sequence_attention_backward<Scalar>(state.shape, state.dcontext, s.query, s.key, s.value,
                                      s.context, s.log_sum_exp, state.dquery, state.dkey,
                                      state.dvalue);
  rotary_backward<Scalar>(state.dquery, T, state.rotary);
  rotary_backward<Scalar>(state.dkey, T, state.rotary);
  if (state.config.qk_norm) {
    auto dquery = by_head(state.dquery, d), dkey = by_head(state.dkey, d);
    rms_norm_backward<Scalar>(dquery, by_head(s.raw_query, d), layer.q_norm, s.query_rstd, dquery,
                              gradient.q_norm);
    rms_norm_backward<Scalar>(dkey, by_head(s.raw_key, d), layer.k_norm, s.key_rstd, dkey,
                              gradient.k_norm);
  }
  linear_backward_weight<Scalar>(state.dquery, s.normed, gradient.q_proj);
  linear_backward_weight<Scalar>(state.dkey, s.normed, gradient.k_proj);
  linear_backward_weight<Scalar>(state.dvalue, s.normed, gradient.v_proj);
  linear_backward_input<Scalar>(state.dquery, layer.q_proj, state.dnormed);
  linear_backward_input_add<Scalar>(state.dkey, layer.k_proj, state.dnormed);
  linear_backward_input_add<Scalar>(state.dvalue, layer.v_proj, state.dnormed);
  rms_norm_backward<Scalar>(state.dnormed, s.input, layer.input_layernorm, s.rstd, state.dnormed,
                            gradient.input_layernorm);
}

// output = (silu(x W_gate^T) ∘ x W_up^T) W_down^T,  x = RMSNorm(input)
template <class Scalar>
void mlp_sublayer_forward(const LayerParameters<Scalar>& layer, TransformerState<Scalar>& state,
                          MlpSublayerState<Scalar>& s) {
  rms_norm_forward<Scalar>(s.input, layer.post_attention_layernorm,
                           Scalar(state.config.rms_norm_eps), s.normed, s.rstd);
  linear_forward<Scalar>(s.normed, layer.gate_proj, s.gate);
  linear_forward<Scalar>(s.normed, layer.up_proj, s.up);
  swiglu_forward<Scalar>(s.gate, s.up, s.hidden);
  linear_forward<Scalar>(s.hidden, layer.down_proj, state.output);
}

template <class Scalar>
void mlp_sublayer_backward(const LayerParameters<Scalar>& layer,
                           const LayerParameters<Scalar>& gradient, TransformerState<Scalar>& state,
                           MlpSublayerState<Scalar>& s) {
  linear_backward_weight<Scalar>(state.output, s.hidden, gradient.down_proj);
  linear_backward_input<Scalar>(state.output, layer.down_proj, state.dhidden);
  swiglu_backward<Scalar>(state.dhidden, s.gate, s.up, state.dgate, state.dup);
  linear_backward_weight<Scalar>(state.dgate, s.normed, gradient.gate_proj);
  linear_backward_weight<Scalar>(state.dup, s.normed, gradient.up_proj);
  linear_backward_input<Scalar>(state.dgate, layer.gate_proj, state.dnormed);
  linear_backward_input_add<Scalar>(state.dup, layer.up_proj, state.dnormed);
  rms_norm_backward<Scalar>(state.dnormed, s.input, layer.post_attention_layernorm, s.rstd,
                            state.dnormed, gradient.post_attention_layernorm);
}

template <class Scalar>
void check_batch(const TokenBatch& batch, const TransformerState<Scalar>& state) {
  if (batch.sequences != state.shape.sequences || batch.positions != state.shape.positions ||
      Index(batch.tokens.size()) != state.tokens())
    throw std::invalid_argument(
        "transformer: a batch of " + std::to_string(batch.sequences) + " x " +
        std::to_string(batch.positions) + " tokens does not fit a state of " +
        std::to_string(state.shape.sequences) + " x " + std::to_string(state.shape.positions));
}

template <class Scalar>
double mean_loss(const TokenBatch& batch, const Vector<Scalar>& token_loss) {
  double sum = 0;
  Index counted = 0;
  for (Index n = 0; n < token_loss.size(); ++n) {
    if (batch.targets[n] == kIgnoredTarget) continue;
    sum += double(token_loss[n]);
    ++counted;
  }
  return counted == 0 ? 0.0 : sum / double(counted);
}

template <class Scalar>
void record_output(TransformerState<Scalar>& state) {
  if (state.statistics)
    state.statistics->output_rms.push_back(std::sqrt(
        state.output.template cast<double>().squaredNorm() / double(state.output.size())));
}

template <class Scalar>
void record_gradient(TransformerState<Scalar>& state, Index sublayer) {
  if (state.statistics)
    state.statistics->gradient_norm[sublayer] =
        std::sqrt(state.output.template cast<double>().squaredNorm());
}

// Embedding, sublayers, readout, final norm: leaves state.hidden.
template <class Scalar>
void forward(const Parameters<Scalar>& parameters, const TokenBatch& batch,
             TransformerState<Scalar>& state) {
  check_batch(batch, state);
  DepthMixer<Scalar>& mixer = *state.mixer;
  if (state.statistics) state.statistics->output_rms.clear();
  mixer.begin(parameters.sites());
  embedding_forward<Scalar>(batch.tokens, parameters.embed_tokens(), state.output);
  record_output(state);
  mixer.write(0, state.output);
  for (Index b = 0; b < state.config.num_hidden_layers; ++b) {
    auto& attention = state.attention[std::size_t(b) % state.attention.size()];
    auto& mlp = state.mlp[std::size_t(b) % state.mlp.size()];
    mixer.read(2 * b + 1, attention.input);
    attention_sublayer_forward(parameters.layer(b), state, attention);
    record_output(state);
    mixer.write(2 * b + 1, state.output);
    mixer.read(2 * b + 2, mlp.input);
    mlp_sublayer_forward(parameters.layer(b), state, mlp);
    record_output(state);
    mixer.write(2 * b + 2, state.output);
  }
  mixer.read(state.config.sublayers() + 1, state.final_input);
  rms_norm_forward<Scalar>(state.final_input, parameters.norm(), Scalar(state.config.rms_norm_eps),
                           state.hidden, state.final_rstd);
}

// From state.dnormed = dLoss/dhidden back to the embedding.
template <class Scalar>
void backward(const Parameters<Scalar>& parameters, const TokenBatch& batch,
              TransformerState<Scalar>& state, Parameters<Scalar>& gradients) {
  DepthMixer<Scalar>& mixer = *state.mixer;
  const Index L = state.config.sublayers();
  if (state.statistics) state.statistics->gradient_norm.assign(L + 1, 0.0);
  mixer.begin_backward();
  rms_norm_backward<Scalar>(state.dnormed, state.final_input, parameters.norm(), state.final_rstd,
                            state.dnormed, gradients.norm());
  mixer.read_backward(L + 1, state.final_input, state.dnormed);
  for (Index b = state.config.num_hidden_layers - 1; b >= 0; --b) {
    mixer.write_backward(2 * b + 2, state.output);
    record_gradient(state, 2 * b + 2);
    mlp_sublayer_backward(parameters.layer(b), gradients.layer(b), state, state.mlp[b]);
    mixer.read_backward(2 * b + 2, state.mlp[b].input, state.dnormed);
    mixer.write_backward(2 * b + 1, state.output);
    record_gradient(state, 2 * b + 1);
    attention_sublayer_backward(parameters.layer(b), gradients.layer(b), state, state.attention[b]);
    mixer.read_backward(2 * b + 1, state.attention[b].input, state.dnormed);
  }
  mixer.write_backward(0, state.output);
  record_gradient(state, 0);
  embedding_backward<Scalar>(batch.tokens, state.output, gradients.embed_tokens());
  mixer.end_backward(parameters.sites(), gradients.sites());
}

template <class Scalar>
std::size_t bytes_of(std::initializer_list<const Matrix<Scalar>*> matrices) {
  Index values = 0;
  for (const auto* matrix : matrices) values += matrix->size();
  return std::size_t(values) * sizeof(Scalar);
}

}  // namespace

template <class Scalar>
TransformerState<Scalar>::TransformerState(const ModelConfig& c, Index sequences, Index positions,
                                           Saved which)
    : config(c),
      shape{sequences, positions, c.num_attention_heads, c.num_key_value_heads, c.head_dim},
      rotary(make_rotary_table<Scalar>(positions, c.head_dim, c.rope_theta)),
      mixer(make_depth_mixer<Scalar>(c, sequences * positions)),
      saved(which),
      attention(which == Saved::every_layer ? std::size_t(c.num_hidden_layers) : 1),
      mlp(attention.size()) {
  const Index N = tokens(), D = c.hidden_size, F = c.intermediate_size;
  const Index q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
  for (auto& s : attention) {
    for (auto* m : {&s.input, &s.normed}) m->resize(N, D);
    for (auto* m : {&s.query, &s.context}) m->resize(N, q);
    for (auto* m : {&s.key, &s.value}) m->resize(N, kv);
    s.rstd.resize(N);
    s.log_sum_exp.resize(c.num_attention_heads, N);
    if (!c.qk_norm) continue;
    s.raw_query.resize(N, q);
    s.raw_key.resize(N, kv);
    s.query_rstd.resize(N * c.num_attention_heads);
    s.key_rstd.resize(N * c.num_key_value_heads);
  }
  for (auto& s : mlp) {
    for (auto* m : {&s.input, &s.normed}) m->resize(N, D);
    for (auto* m : {&s.gate, &s.up, &s.hidden}) m->resize(N, F);
    s.rstd.resize(N);
  }
  for (auto* m : {&final_input, &hidden, &output}) m->resize(N, D);
  final_rstd.resize(N);
  token_loss.resize(N);
  logits.resize(cross_entropy_chunk(N, c.vocab_size), c.vocab_size);
  if (saved == Saved::one_layer) return;
  dnormed.resize(N, D);
  for (auto* m : {&dquery, &dcontext}) m->resize(N, q);
  for (auto* m : {&dkey, &dvalue}) m->resize(N, kv);
  for (auto* m : {&dgate, &dup, &dhidden}) m->resize(N, F);
}

template <class Scalar>
std::size_t TransformerState<Scalar>::saved_bytes() const {
  std::size_t bytes = bytes_of<Scalar>({&final_input, &hidden});
  for (const auto& s : attention)
    bytes += bytes_of<Scalar>({&s.input, &s.normed, &s.query, &s.key, &s.value, &s.context,
                               &s.log_sum_exp, &s.raw_query, &s.raw_key}) +
             std::size_t(s.rstd.size() + s.query_rstd.size() + s.key_rstd.size()) * sizeof(Scalar);
  for (const auto& s : mlp)
    bytes += bytes_of<Scalar>({&s.input, &s.normed, &s.gate, &s.up, &s.hidden}) +
             std::size_t(s.rstd.size()) * sizeof(Scalar);
  return bytes;
}

template <class Scalar>
std::size_t TransformerState<Scalar>::scratch_bytes() const {
  return bytes_of<Scalar>(
      {&output, &dnormed, &dquery, &dkey, &dvalue, &dcontext, &dgate, &dup, &dhidden, &logits});
}

template <class Scalar>
double transformer_loss(const Parameters<Scalar>& parameters, const TokenBatch& batch,
                        TransformerState<Scalar>& state, std::span<std::uint8_t> greedy) {
  forward(parameters, batch, state);
  cross_entropy_forward<Scalar>(state.hidden, parameters.head(), batch.targets, state.logits,
                                state.token_loss, greedy);
  return mean_loss(batch, state.token_loss);
}

template <class Scalar>
void transformer_logits(const Parameters<Scalar>& parameters, const TokenBatch& batch,
                        TransformerState<Scalar>& state, MatrixOut<Scalar> logits) {
  forward(parameters, batch, state);
  linear_forward<Scalar>(state.hidden, parameters.head(), logits);
}

template <class Scalar>
void transformer_next_logits(const Parameters<Scalar>& parameters, const TokenBatch& batch, Index t,
                             TransformerState<Scalar>& state, VectorOut<Scalar> logits) {
  forward(parameters, batch, state);
  logits.noalias() = parameters.head() * state.hidden.row(t).transpose();
}

template <class Scalar>
double transformer_loss_and_gradients(const Parameters<Scalar>& parameters, const TokenBatch& batch,
                                      Scalar scale, TransformerState<Scalar>& state,
                                      Parameters<Scalar>& gradients) {
  if (state.saved != Saved::every_layer)
    throw std::logic_error("transformer: a state that saves one layer has no backward pass");
  forward(parameters, batch, state);
  cross_entropy_forward_backward<Scalar>(state.hidden, parameters.head(), batch.targets, scale,
                                         state.logits, state.token_loss, state.dnormed,
                                         gradients.head());
  backward(parameters, batch, state, gradients);
  return mean_loss(batch, state.token_loss);
}

#define INSTANTIATE(S)                                                                          \
  template struct TransformerState<S>;                                                          \
  template double transformer_loss<S>(const Parameters<S>&, const TokenBatch&,                  \
                                      TransformerState<S>&, std::span<std::uint8_t>);           \
  template void transformer_logits<S>(const Parameters<S>&, const TokenBatch&,                  \
                                      TransformerState<S>&, MatrixOut<S>);                      \
  template void transformer_next_logits<S>(const Parameters<S>&, const TokenBatch&, Index,      \
                                           TransformerState<S>&, VectorOut<S>);                 \
  template double transformer_loss_and_gradients<S>(const Parameters<S>&, const TokenBatch&, S, \
                                                    TransformerState<S>&, Parameters<S>&);
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
