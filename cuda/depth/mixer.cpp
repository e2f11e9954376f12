#include "cuda/depth/mixer.h"

#include <stdexcept>

namespace attnres::ATTNRES_BACKEND {
namespace {

using Kind = DepthMixing::Kind;

DepthPlan plan_of(const DepthShape& shape) {
  shape.validate();
  return make_depth_plan(shape.sublayers, shape.mixing);
}

std::size_t size(int64_t a, int64_t b = 1) { return std::size_t(a * b); }

}  // namespace

template <class T>
DepthMixer<T>::DepthMixer(const DepthShape& shape)
    : shape_(shape),
      plan_(plan_of(shape)),
      group_(choose_group(plan_, shape, sizeof(T))),
      lists_(plan_, group_),
      rows_(shape.tokens * shape.channels),
      scalars_(shape.tokens * shape.mixing.heads),
      bank_(plan_, shape, group_) {
  const int L = shape.sublayers, D = shape.channels, H = shape.mixing.heads;
  if (shape.mixing.kind != Kind::attention) stream_values_ = DeviceArray<float>(size(rows_));
  if (!shape.attends()) return;
  site_row_ = site_layout(D, H);
  if (group_ > 1) group_row_ = group_layout(D, H, group_);
  if (shape.mixing.block_sublayers > 1) carry_ = DeviceArray<T>(size(rows_));
  if (shape.mixing.kind == Kind::delta) {
    outputs_ = DeviceArray<T>(size(L + 1, rows_));
    scratch_ = DeviceArray<T>(size(rows_));
    dgates_ = DeviceArray<float>(size(L + 1, shape.tokens));
  }
  if (site_row_)
    dgain_partials_ = DeviceArray<float>(size(keep_gradient_rows(*site_row_, shape.tokens), D));
}

template <class T>
std::size_t DepthMixer<T>::bytes() const {
  return bank_.bytes() + lists_.bytes() + carry_.bytes() + stream_values_.bytes() +
         outputs_.bytes() + scratch_.bytes() + dgates_.bytes() + dgain_partials_.bytes();
}

template <class T>
void DepthMixer<T>::copy_rows(const T* from, T* to) {
  check_device(
      cudaMemcpyAsync(to, from, std::size_t(rows_) * sizeof(T), cudaMemcpyDeviceToDevice, stream_),
      "cudaMemcpyAsync");
}

// ---- Forward ----

template <class T>
void DepthMixer<T>::begin(const std::vector<SiteParameters>& parameters) {
  parameters_ = parameters;
  if (!shape_.attends()) return;
  for (int site = 1; site <= shape_.sublayers + 1; ++site)
    if (parameters[site].query != nullptr)
      fold_query(parameters[site].query, parameters[site].key_gain,
                 bank_.folded.data() + int64_t(site) * shape_.channels, shape_.channels, stream_);
}

template <class T>
void DepthMixer<T>::write(int sublayer, const T* output) {
  if (shape_.mixing.kind != Kind::attention)
    add_to_stream<T>(stream_values_.data(), output, sublayer == 0, rows_, stream_);
  if (!shape_.attends()) return;
  T* const to = source(sublayer);
  if (plan_.continues[sublayer])
    add<T>(output, source(sublayer - 1), to, rows_, stream_);
  else if (to != output)
    copy_rows(output, to);
}

template <class T>
void DepthMixer<T>::read(int site, T* input, const PreNorm<T>& norm) {
  if (norm.gain != nullptr && shape_.mixing.kind != Kind::attention)
    throw std::invalid_argument("only plain depth attention fuses the pre-norm");
  if (shape_.mixing.kind == Kind::attention) return read_attention(site, input, norm);
  const bool routes = shape_.attends() && site <= shape_.sublayers;
  T* const o = routes ? outputs_.data() + site * rows_ : nullptr;
  if (routes) read_attention(site, o, {});
  read_stream<T>(stream_values_.data(), o, routes ? parameters_[site].gate : nullptr, input, rows_,
                 stream_);
}

template <class T>
SiteForward<T> DepthMixer<T>::site_forward(int site, T* output, const PreNorm<T>& norm) {
  return {bank_.sources.data(),
          bank_.rstd.data(),
          shape_.tokens,
          shape_.eps,
          lists_.sources(site),
          lists_.source_count(site),
          0,
          site - 1,  // what the sublayer before has just written
          bank_.folded.data() + int64_t(site) * shape_.channels,
          {},
          bank_.weights.data() + lists_.first_pair(site) * scalars_,
          output,
          norm};
}

template <class T>
void DepthMixer<T>::read_attention(int site, T* output, const PreNorm<T>& norm) {
  SiteForward<T> forward = site_forward(site, output, norm);
  if (shape_.generation == Generation::naive)
    return naive_forward<T>(forward, shape_.channels, shape_.mixing.heads, stream_);
  const int first_site = lists_.first_of_group(site);
  if (group_ > 1 && site == first_site) return read_group(site, output, norm);
  if (group_ > 1) {
    forward.first = lists_.old_source_count(site);
    forward.partial = partial_mix(site - first_site - 1);
  }
  fused_forward<T>(*site_row_, forward, stream_);
}

template <class T>
void DepthMixer<T>::read_group(int first_site, T* output, const PreNorm<T>& norm) {
  const DevicePlan::SiteGroup lists = lists_.group_of_sites(first_site);
  GroupForward<T> group{};
  for (int l = 0; l < lists.sites; ++l) {
    group.folded[l] = bank_.folded.data() + int64_t(first_site + l) * shape_.channels;
    group.weights[l] = bank_.weights.data() + lists_.first_pair(first_site + l) * scalars_;
    if (l > 0) group.partials[l] = partial_mix(l - 1);
  }
  group.bank = bank_.sources.data();
  group.rstd = bank_.rstd.data();
  group.tokens = shape_.tokens;
  group.eps = shape_.eps;
  group.sources = lists.sources;
  group.positions = lists.positions;
  group.count = lists.count;
  group.sites = lists.sites;
  group.fresh = first_site - 1;
  group.output = output;
  group.norm = norm;
  grouped_forward<T>(*group_row_, group, stream_);
}

template <class T>
PartialMix DepthMixer<T>::partial_mix(int slot) {
  return {bank_.statistics.data() + 2 * slot * scalars_,
          bank_.statistics.data() + (2 * slot + 1) * scalars_, bank_.mix.data() + slot * rows_};
}

template <class T>
PartialGather DepthMixer<T>::partial_gather(int slot) {
  return {bank_.mix.data() + slot * rows_, bank_.statistics.data() + 2 * slot * scalars_};
}

// ---- Backward ----

template <class T>
void DepthMixer<T>::begin_backward() {
  bank_.partials.zero(stream_);
  bank_.dsources.zero(stream_);
  if (shape_.mixing.kind != Kind::attention) stream_values_.zero(stream_);
}

template <class T>
void DepthMixer<T>::read_backward(int site, const T* input, const T* dinput, const PreNorm<T>& norm,
                                  float* dgain) {
  if (shape_.mixing.kind == Kind::attention) return keep(site, input, dinput, norm, dgain);
  add_to_stream<T>(stream_values_.data(), dinput, false, rows_, stream_);
  if (!shape_.attends() || site > shape_.sublayers) return;
  // input = x + alpha o:  dalpha = <dinput, o>;  do = alpha dinput.
  const T* const o = outputs_.data() + site * rows_;
  row_dots<T>(dinput, o, dgates_.data() + site * shape_.tokens, shape_.tokens, shape_.channels,
              stream_);
  scale<T>(dinput, parameters_[site].gate, gradient(site), rows_, stream_);
  keep(site, o, gradient(site), {}, nullptr);
}

template <class T>
void DepthMixer<T>::keep(int site, const T* output, const T* incoming, const PreNorm<T>& norm,
                         float* dgain) {
  float* const delta = bank_.delta.data() + site * scalars_;
  if (shape_.generation == Generation::naive) {
    if (norm.gain != nullptr)
      throw std::invalid_argument("the naive generation does not fuse the pre-norm");
    if (gradient(site) != incoming) copy_rows(incoming, gradient(site));
    naive_delta<T>(incoming, output, delta, shape_.tokens, shape_.channels, shape_.mixing.heads,
                   stream_);
    return scatter(site);
  }
  keep_gradient<T>(
      *site_row_,
      {shape_.tokens, incoming, output, norm, gradient(site), delta, dgain_partials_.data()},
      stream_);
  if (norm.gain != nullptr)
    add_rows(dgain_partials_.data(), keep_gradient_rows(*site_row_, shape_.tokens), shape_.channels,
             dgain, shape_.channels, stream_);
}

template <class T>
void DepthMixer<T>::scatter(int site) {
  const Scatter<T> scatter{shape_.tokens,
                           shape_.channels,
                           heads(),
                           bank_.sources.data(),
                           bank_.rstd.data(),
                           lists_.sources(site),
                           lists_.source_count(site),
                           bank_.folded.data() + int64_t(site) * shape_.channels,
                           bank_.weights.data() + lists_.first_pair(site) * scalars_,
                           gradient(site),
                           bank_.delta.data() + site * scalars_,
                           bank_.errors.data() + lists_.first_pair(site) * scalars_,
                           bank_.dsources.data()};
  naive_scatter<T>(scatter, stream_);
  naive_query_gradient<T>(scatter, bank_.partials.data() + int64_t(site) * shape_.channels,
                          stream_);
}

template <class T>
void DepthMixer<T>::write_backward(int sublayer, T* doutput) {
  if (!shape_.attends())
    return read_stream<T>(stream_values_.data(), nullptr, nullptr, doutput, rows_, stream_);
  const bool delta = shape_.mixing.kind == Kind::delta;
  T* const dsource = delta ? scratch_.data() : doutput;
  if (shape_.generation == Generation::naive)
    naive_write_backward(sublayer, dsource);
  else if (sublayer > lists_.last_read())
    write_zeros(sublayer, dsource);
  else if (group_ > 1 && sublayer == lists_.last_of_group(sublayer))
    gather_group(sublayer, dsource);
  else
    gather(sublayer, dsource);
  if (delta) read_stream<T>(stream_values_.data(), dsource, nullptr, doutput, rows_, stream_);
}

// No site reads the delta form's last source; what continues it would have been read.
template <class T>
void DepthMixer<T>::write_zeros(int source, T* dsource) {
  const auto zero = [&](T* rows) {
    check_device(cudaMemsetAsync(rows, 0, std::size_t(rows_) * sizeof(T), stream_),
                 "cudaMemsetAsync");
  };
  zero(dsource);
  if (T* carry = carry_out(source)) zero(carry);
}

template <class T>
void DepthMixer<T>::naive_write_backward(int source, T* dsource) {
  convert<T>(bank_.dsources.data() + source * rows_, dsource, rows_, stream_);
  if (const T* carry = carry_in(source)) add<T>(dsource, carry, dsource, rows_, stream_);
  if (T* carry = carry_out(source)) copy_rows(dsource, carry);
}

template <class T>
void DepthMixer<T>::gather(int source, T* dsource) {
  Gather<T> gather{shape_.tokens,
                   this->source(source),
                   bank_.rstd.data() + source * shape_.tokens,
                   bank_.gradients.data(),
                   bank_.delta.data(),
                   bank_.folded.data(),
                   bank_.weights.data(),
                   bank_.errors.data(),
                   lists_.consumers(source),
                   lists_.consumer_count(source),
                   {},
                   carry_in(source),
                   dsource,
                   carry_out(source)};
  if (group_ > 1) {
    const int last = lists_.last_of_group(source);
    gather.count = lists_.inner_consumer_count(source);
    gather.partial = partial_gather(source - lists_.group_of_sources(last).first);
  }
  fused_gather<T>(*site_row_, gather, stream_);
  sum_query_gradients(source);
}

template <class T>
void DepthMixer<T>::sum_query_gradients(int source) {
  query_gradient<T>(
      {shape_.tokens, this->source(source), bank_.rstd.data() + source * shape_.tokens,
       bank_.errors.data(), lists_.consumers(source), lists_.consumer_count(source),
       shape_.channels, heads(), shape_.sublayers + 2, bank_.partials.data()},
      stream_);
}

template <class T>
void DepthMixer<T>::gather_group(int last, T* dsource) {
  const DevicePlan::SourceGroup lists = lists_.group_of_sources(last);
  GroupGather<T> group{};
  for (int i = 0; i < lists.sources; ++i) {
    group.source[i] = source(lists.first + i);
    group.rstd[i] = bank_.rstd.data() + (lists.first + i) * shape_.tokens;
    if (i < lists.sources - 1) group.partials[i] = partial_gather(i);
  }
  group.tokens = shape_.tokens;
  group.gradients = bank_.gradients.data();
  group.delta = bank_.delta.data();
  group.folded = bank_.folded.data();
  group.weights = bank_.weights.data();
  group.errors = bank_.errors.data();
  group.sites = lists.sites;
  group.pairs = lists.pairs;
  group.count = lists.count;
  group.sources = lists.sources;
  group.carry = carry_in(last);
  group.dsource = dsource;
  group.keep = carry_out(last);
  grouped_gather<T>(*group_row_, group, stream_);
  sum_query_gradients(last);
}

template <class T>
void DepthMixer<T>::end_backward(const std::vector<SiteParameters>& gradients) {
  if (!shape_.attends()) return;
  const int D = shape_.channels, sites = shape_.sublayers + 2;
  const int chunks = int(int64_t(bank_.partials.size()) / sites / D);
  for (int site = 1; site <= shape_.sublayers + 1; ++site) {
    const SiteParameters& p = parameters_[site];
    if (p.query != nullptr)
      unfold_query_gradient(bank_.partials.data() + int64_t(site) * D, chunks, int64_t(sites) * D,
                            p.query, p.key_gain, gradients[site].query, gradients[site].key_gain, D,
                            stream_);
    if (p.gate != nullptr)
      add_rows(dgates_.data() + site * shape_.tokens, int(shape_.tokens), 1, gradients[site].gate,
               1, stream_);
  }
}

template class DepthMixer<float>;
template class DepthMixer<__nv_bfloat16>;

}  // namespace attnres::ATTNRES_BACKEND
