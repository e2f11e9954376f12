#include "reference/depth/attention_mixer.h"

#include "reference/instantiate.h"
#include "reference/parallel.h"
#include "reference/rms_norm.h"

namespace attnres {

template <class Scalar>
AttentionMixer<Scalar>::AttentionMixer(const ModelConfig& config, Index tokens)
    : group_sites_(config.depth_mixing.group_sites),
      eps_(Scalar(config.rms_norm_eps)),
      plan_(make_depth_plan(config.sublayers(), config.depth_mixing)),
      bank_(tokens, plan_, config.hidden_size),
      routing_(tokens, plan_, config.hidden_size, config.depth_mixing.heads),
      partials_(tokens, plan_.sites(), config.hidden_size),
      dfolded_(config.hidden_size) {
  const Index N = tokens, D = config.hidden_size, H = config.depth_mixing.heads;
  if (config.depth_mixing.block_sublayers > 1) dblock_.resize(N, D);
  if (group_sites_ > 1)
    mixes_.assign(std::size_t(std::min(group_sites_, plan_.sites())),
                  {Matrix<Scalar>(N, H), Matrix<Scalar>(N, H), Matrix<Scalar>(N, D)});
}

template <class Scalar>
void AttentionMixer<Scalar>::begin(Sites parameters) {
  for (Index l = 1; l <= plan_.sites(); ++l)
    if (parameters[l].query.size() > 0)
      routing_.folded[l] = parameters[l].query.cwiseProduct(parameters[l].key_gain);
}

template <class Scalar>
void AttentionMixer<Scalar>::write(Index sublayer, MatrixIn<Scalar> output) {
  auto source = bank_.sources[sublayer];
  for_each_tile(output.rows(), kDepthTile, [&](Index first, Index count) {
    auto rows = source.middleRows(first, count);
    rows = output.middleRows(first, count);
    if (plan_.continues[sublayer]) rows += bank_.sources[sublayer - 1].middleRows(first, count);
    rms_norm_statistics<Scalar>(rows, eps_, bank_.rstd[sublayer].segment(first, count));
  });
}

template <class Scalar>
void AttentionMixer<Scalar>::read(Index site, MatrixOut<Scalar> input) {
  if (group_sites_ == 1)
    return depth_attention_forward<Scalar>(bank_, plan_, site, routing_, input);
  const Index in_group = (site - 1) % group_sites_, first_site = site - in_group;
  if (in_group == 0) {
    const Index count = std::min(group_sites_, plan_.sites() - first_site + 1);
    evaluate_group<Scalar>(bank_, plan_, first_site, routing_,
                           std::span(mixes_).first(std::size_t(count)));
  }
  finish_grouped_site<Scalar>(bank_, plan_, site, first_site, routing_, mixes_[in_group], input);
}

template <class Scalar>
void AttentionMixer<Scalar>::read_backward(Index site, MatrixIn<Scalar> input,
                                           MatrixIn<Scalar> dinput) {
  depth_attention_keep_gradient<Scalar>(dinput, input, site, routing_);
}

template <class Scalar>
void AttentionMixer<Scalar>::write_backward(Index sublayer, MatrixOut<Scalar> doutput) {
  const bool continued = sublayer < plan_.sublayers && plan_.continues[sublayer + 1];
  if (continued) doutput = dblock_;
  depth_attention_backward_gather<Scalar>(bank_, plan_, sublayer, routing_, continued, doutput,
                                          partials_);
  if (plan_.continues[sublayer]) dblock_ = doutput;
}

template <class Scalar>
void AttentionMixer<Scalar>::end_backward(Sites parameters, Sites gradients) {
  for (Index l = 1; l <= plan_.sites(); ++l) {
    if (parameters[l].query.size() == 0) continue;
    sum_partials<Scalar>(partials_, plan_.sites(), l, dfolded_);
    VectorView<Scalar> dquery = gradients[l].query, dkey_gain = gradients[l].key_gain;
    dquery += dfolded_.cwiseProduct(parameters[l].key_gain);
    dkey_gain += dfolded_.cwiseProduct(parameters[l].query);
  }
}

template <class Scalar>
std::size_t AttentionMixer<Scalar>::bytes() const {
  const Index statistics = bank_.sources.tokens() * (plan_.sublayers + 1);
  Index values = bank_.sources.size() + statistics + routing_.size() + partials_.dfolded.size() +
                 partials_.u.size() + dblock_.size() + dfolded_.size();
  for (const auto& mix : mixes_)
    values += mix.maximum.size() + mix.sum.size() + mix.unnormalised.size();
  return std::size_t(values) * sizeof(Scalar);
}

#define INSTANTIATE(S) template class AttentionMixer<S>;
ATTNRES_FOR_EACH_SCALAR(INSTANTIATE)
#undef INSTANTIATE

}  // namespace attnres
