#include "cuda/depth/mixer.h"

#include <algorithm>
#include <array>
#include <set>
#include <stdexcept>

#include "cuda/depth/byte_model.h"

namespace attnres::ATTNRES_BACKEND {
namespace {

using Kind = DepthMixing::Kind;

bool attends(const DepthShape& shape) { return shape.mixing.kind != Kind::residual; }

int choose_group(const DepthPlan& plan, const DepthShape& shape, int row_bytes) {
  if (!attends(shape) || shape.generation != Generation::grouped) return 1;
  const auto fits = [&](int group) {
    return group_layout(shape.channels, shape.mixing.heads, group).has_value();
  };
  if (shape.group > 0) {
    if (shape.group > kMaxGroup || !fits(shape.group))
      throw std::invalid_argument("groups of " + std::to_string(shape.group) + " rows of " +
                                  std::to_string(shape.channels) + " channels in " +
                                  std::to_string(shape.mixing.heads) +
                                  " heads do not fit a block; smaller groups or the fused "
                                  "generation do");
    return shape.group;
  }
  int largest = kMaxGroup;
  while (largest > 1 && !fits(largest)) --largest;
  return best_group(plan, shape.channels, shape.mixing.heads, row_bytes, largest);
}

DepthPlan plan_of(const DepthShape& shape) {
  shape.validate();
  return make_depth_plan(shape.sublayers, shape.mixing);
}

std::size_t size(int64_t a, int64_t b = 1, int64_t c = 1) { return std::size_t(a * b * c); }

// In the order of DepthBank's members.
template <class T>
std::array<std::size_t, 11> bank_sizes(const DepthPlan& plan, const DepthShape& s, int group) {
  const int64_t N = s.tokens, D = s.channels, H = s.mixing.heads, L = s.sublayers;
  if (!attends(s)) return {};
  const bool naive = s.generation == Generation::naive;
  const int64_t chunks = naive ? 1 : query_gradient_chunks(N, int(D), int(H));
  return {size(L + 1, N, D),
          size(L + 2, N, D),
          size(L + 1, N),
          size(L + 2, N, H),
          size(plan.pairs(), N, H),
          size(plan.pairs(), N, H),
          size(L + 2, D),
          size(chunks, L + 2, D),
          size(group - 1, N, D),
          size(group - 1, 2 * N, H),
          naive ? size(L + 1, N, D) : 0};
}

}  // namespace

void DepthShape::validate() const {
  const int H = mixing.heads;
  if (sublayers < 1 || tokens < 1) throw std::invalid_argument("no sublayers or no tokens");
  if (channels < 8 || channels % 8 != 0)
    throw std::invalid_argument(std::to_string(channels) +
                                " channels: the kernels take a multiple of 8");
  if (H < 1 || channels % H != 0)
    throw std::invalid_argument(std::to_string(channels) + " channels do not divide into " +
                                std::to_string(H) + " depth heads");
  if (attends(*this) && generation != Generation::naive && !site_layout(channels, H))
    throw std::invalid_argument(std::to_string(H) + " depth heads of " +
                                std::to_string(channels / H) +
                                " channels fit no block of threads; the naive generation takes "
                                "them");
}

template <class T>
DepthBank<T>::DepthBank(const DepthPlan& plan, const DepthShape& shape, int group) {
  const auto sizes = bank_sizes<T>(plan, shape, group);
  sources = DeviceArray<T>(sizes[0]);
  gradients = DeviceArray<T>(sizes[1]);
  rstd = DeviceArray<float>(sizes[2]);
  delta = DeviceArray<float>(sizes[3]);
  weights = DeviceArray<float>(sizes[4]);
  errors = DeviceArray<float>(sizes[5]);
  folded = DeviceArray<float>(sizes[6]);
  partials = DeviceArray<float>(sizes[7]);
  mix = DeviceArray<float>(sizes[8]);
  statistics = DeviceArray<float>(sizes[9]);
  dsources = DeviceArray<float>(sizes[10]);
}

template <class T>
std::size_t DepthBank<T>::bytes(const DepthPlan& plan, const DepthShape& shape, int group) {
  const auto sizes = bank_sizes<T>(plan, shape, group);
  std::size_t bytes = (sizes[0] + sizes[1]) * sizeof(T);
  for (std::size_t i = 2; i < sizes.size(); ++i) bytes += sizes[i] * sizeof(float);
  return bytes;
}

template <class T>
std::size_t DepthBank<T>::bytes() const {
  return sources.bytes() + gradients.bytes() + rstd.bytes() + delta.bytes() + weights.bytes() +
         errors.bytes() + folded.bytes() + partials.bytes() + mix.bytes() + statistics.bytes() +
         dsources.bytes();
}

template <class T>
DepthMixer<T>::DepthMixer(const DepthShape& shape)
    : shape_(shape),
      plan_(plan_of(shape)),
      group_(choose_group(plan_, shape, sizeof(T))),
      last_read_(shape.sublayers - (shape.mixing.kind == Kind::delta)),
      rows_(shape.tokens * shape.channels),
      scalars_(shape.tokens * shape.mixing.heads),
      bank_(plan_, shape, group_) {
  const int L = shape.sublayers, D = shape.channels, H = shape.mixing.heads;
  if (shape.mixing.kind != Kind::attention) stream_values_ = DeviceArray<float>(size(rows_));
  if (!attends(shape)) return;
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

  std::vector<int> sources;
  first_pair_.assign(std::size_t(L) + 2, 0);
  int64_t pairs = 0;
  for (int site = 0; site <= L + 1; ++site) {
    first_pair_[site] = pairs;
    sources_at_.push_back(int(sources.size()));
    sources.insert(sources.end(), plan_.sources[site].begin(), plan_.sources[site].end());
    pairs += int64_t(plan_.sources[site].size());
  }
  sources_ = DeviceArray<int>(sources);
  std::vector<Consumer> consumers;
  for (int source = 0; source <= L; ++source) {
    consumers_at_.push_back(int(consumers.size()));
    for (const auto& [site, position] : plan_.consumers[source])
      consumers.push_back({int(site), first_pair_[site] + position});
  }
  consumers_at_.push_back(int(consumers.size()));
  consumers_ = DeviceArray<Consumer>(consumers);
  if (group_ == 1) return;

  std::vector<int> old_sources, positions, later_sites;
  std::vector<int64_t> pair_table;
  site_groups_.resize(std::size_t(L) + 2);
  for (int first = 1; first <= L + 1; first += group_) {
    std::set<int> old;
    const int end = std::min(first + group_, L + 2);
    for (int site = first; site < end; ++site)
      for (const Index i : plan_.sources[site])
        if (i < first) old.insert(int(i));
    site_groups_[first] = {int(old_sources.size()), int(old.size())};
    for (const int source : old) {
      old_sources.push_back(source);
      for (int j = 0; j < kMaxGroup; ++j) {
        int position = -1;
        if (first + j < end)
          for (int k = 0; k < int(plan_.sources[first + j].size()); ++k)
            if (plan_.sources[first + j][k] == source) position = k;
        positions.push_back(position);
      }
    }
  }
  source_groups_.resize(std::size_t(L) + 1);
  for (int last = last_read_; last >= 0; last -= group_) {
    std::set<int> later;
    const int first = std::max(0, last - group_ + 1);
    for (int source = first; source <= last; ++source)
      for (const auto& consumer : plan_.consumers[source])
        if (consumer.site > last) later.insert(int(consumer.site));
    source_groups_[last] = {int(later_sites.size()), int(later.size())};
    for (const int site : later) {
      later_sites.push_back(site);
      for (int j = 0; j < kMaxGroup; ++j) {
        int64_t pair = -1;
        if (first + j <= last)
          for (const auto& consumer : plan_.consumers[first + j])
            if (consumer.site == site) pair = first_pair_[site] + consumer.position;
        pair_table.push_back(pair);
      }
    }
  }
  old_sources_ = DeviceArray<int>(old_sources);
  positions_ = DeviceArray<int>(positions);
  later_sites_ = DeviceArray<int>(later_sites);
  pairs_ = DeviceArray<int64_t>(pair_table);
}

template <class T>
std::size_t DepthMixer<T>::bytes() const {
  return bank_.bytes() + sources_.bytes() + consumers_.bytes() + old_sources_.bytes() +
         positions_.bytes() + later_sites_.bytes() + pairs_.bytes() + carry_.bytes() +
         stream_values_.bytes() + outputs_.bytes() + scratch_.bytes() + dgates_.bytes() +
         dgain_partials_.bytes();
}

// ---- Forward ----

template <class T>
void DepthMixer<T>::begin(const std::vector<SiteParameters>& parameters) {
  parameters_ = parameters;
  if (!attends(shape_)) return;
  for (int site = 1; site <= shape_.sublayers + 1; ++site)
    if (parameters[site].query != nullptr)
      fold_query(parameters[site].query, parameters[site].key_gain,
                 bank_.folded.data() + int64_t(site) * shape_.channels, shape_.channels, stream_);
}

template <class T>
void DepthMixer<T>::write(int sublayer, const T* output) {
  if (shape_.mixing.kind != Kind::attention)
    add_to_stream<T>(stream_values_.data(), output, sublayer == 0, rows_, stream_);
  if (!attends(shape_)) return;
  T* const to = source(sublayer);
  if (plan_.continues[sublayer])
    add<T>(output, source(sublayer - 1), 1.0f, to, rows_, stream_);
  else if (to != output)
    add<T>(output, nullptr, 0.0f, to, rows_, stream_);
}

template <class T>
void DepthMixer<T>::read(int site, T* input, const PreNorm<T>& norm) {
  if (norm.gain != nullptr && shape_.mixing.kind != Kind::attention)
    throw std::invalid_argument("only plain depth attention fuses the pre-norm");
  if (shape_.mixing.kind == Kind::attention) return read_attention(site, input, norm);
  const bool routes = attends(shape_) && site <= shape_.sublayers;
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
          sources_.data() + sources_at_[site],
          int(plan_.sources[site].size()),
          0,
          site - 1,  // what the sublayer before has just written
          bank_.folded.data() + int64_t(site) * shape_.channels,
          {},
          bank_.weights.data() + first_pair_[site] * scalars_,
          output,
          norm};
}

template <class T>
void DepthMixer<T>::read_attention(int site, T* output, const PreNorm<T>& norm) {
  SiteForward<T> forward = site_forward(site, output, norm);
  if (shape_.generation == Generation::naive)
    return naive_forward<T>(forward, shape_.channels, shape_.mixing.heads, stream_);
  const int first_site = group_of_site(site);
  if (group_ > 1 && site == first_site) return read_group(site, output, norm);
  if (group_ > 1) {
    forward.partial = partial_mix(site - first_site - 1);
    for (const Index i : plan_.sources[site]) forward.first += i < first_site;
  }
  fused_forward<T>(*site_row_, forward, stream_);
}

template <class T>
void DepthMixer<T>::read_group(int first_site, T* output, const PreNorm<T>& norm) {
  const auto [at, count] = site_groups_[first_site];
  int sites = 0;
  GroupForward<T> group{};
  for (int site = first_site; site < first_site + group_ && site <= shape_.sublayers + 1; ++site) {
    if (plan_.sources[site].empty()) break;  // the delta form's readout
    group.folded[sites] = bank_.folded.data() + int64_t(site) * shape_.channels;
    group.weights[sites] = bank_.weights.data() + first_pair_[site] * scalars_;
    if (sites > 0) group.partials[sites] = partial_mix(sites - 1);
    ++sites;
  }
  group.bank = bank_.sources.data();
  group.rstd = bank_.rstd.data();
  group.tokens = shape_.tokens;
  group.eps = shape_.eps;
  group.sources = old_sources_.data() + at;
  group.positions = positions_.data() + int64_t(at) * kMaxGroup;
  group.count = count;
  group.sites = sites;
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
  if (!attends(shape_) || site > shape_.sublayers) return;
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
    if (gradient(site) != incoming) add<T>(incoming, nullptr, 0.0f, gradient(site), rows_, stream_);
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
                           sources_.data() + sources_at_[site],
                           int(plan_.sources[site].size()),
                           bank_.folded.data() + int64_t(site) * shape_.channels,
                           bank_.weights.data() + first_pair_[site] * scalars_,
                           gradient(site),
                           bank_.delta.data() + site * scalars_,
                           bank_.errors.data() + first_pair_[site] * scalars_,
                           bank_.dsources.data()};
  naive_scatter<T>(scatter, stream_);
  naive_query_gradient<T>(scatter, bank_.partials.data() + int64_t(site) * shape_.channels,
                          stream_);
}

template <class T>
void DepthMixer<T>::write_backward(int sublayer, T* doutput) {
  if (!attends(shape_))
    return read_stream<T>(stream_values_.data(), nullptr, nullptr, doutput, rows_, stream_);
  const bool delta = shape_.mixing.kind == Kind::delta;
  T* const dsource = delta ? scratch_.data() : doutput;
  if (shape_.generation == Generation::naive)
    naive_write_backward(sublayer, dsource);
  else if (sublayer > last_read_)
    write_zeros(sublayer, dsource);
  else if (group_ > 1 && sublayer == group_of_source(sublayer))
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
  if (const T* carry = carry_in(source)) add<T>(dsource, carry, 1.0f, dsource, rows_, stream_);
  if (T* carry = carry_out(source)) add<T>(dsource, nullptr, 0.0f, carry, rows_, stream_);
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
                   consumers_.data() + consumers_at_[source],
                   consumers_at_[source + 1] - consumers_at_[source],
                   {},
                   carry_in(source),
                   dsource,
                   carry_out(source)};
  if (group_ > 1) {
    const int last = group_of_source(source);
    gather.count = 0;
    for (const auto& consumer : plan_.consumers[source]) gather.count += consumer.site <= last;
    gather.partial = partial_gather(source - std::max(0, last - group_ + 1));
  }
  fused_gather<T>(*site_row_, gather, stream_);
  sum_query_gradients(source);
}

template <class T>
void DepthMixer<T>::sum_query_gradients(int source) {
  query_gradient<T>(
      {shape_.tokens, this->source(source), bank_.rstd.data() + source * shape_.tokens,
       bank_.errors.data(), consumers_.data() + consumers_at_[source],
       consumers_at_[source + 1] - consumers_at_[source], shape_.channels, heads(),
       shape_.sublayers + 2, bank_.partials.data()},
      stream_);
}

template <class T>
void DepthMixer<T>::gather_group(int last, T* dsource) {
  const int first = std::max(0, last - group_ + 1);
  const auto [at, count] = source_groups_[last];
  GroupGather<T> group{};
  for (int i = first; i <= last; ++i) {
    group.source[i - first] = source(i);
    group.rstd[i - first] = bank_.rstd.data() + i * shape_.tokens;
    if (i < last) group.partials[i - first] = partial_gather(i - first);
  }
  group.tokens = shape_.tokens;
  group.gradients = bank_.gradients.data();
  group.delta = bank_.delta.data();
  group.folded = bank_.folded.data();
  group.weights = bank_.weights.data();
  group.errors = bank_.errors.data();
  group.sites = later_sites_.data() + at;
  group.pairs = pairs_.data() + int64_t(at) * kMaxGroup;
  group.count = count;
  group.sources = last - first + 1;
  group.carry = carry_in(last);
  group.dsource = dsource;
  group.keep = carry_out(last);
  grouped_gather<T>(*group_row_, group, stream_);
  sum_query_gradients(last);
}

template <class T>
void DepthMixer<T>::end_backward(const std::vector<SiteParameters>& gradients) {
  if (!attends(shape_)) return;
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

template struct DepthBank<float>;
template struct DepthBank<__nv_bfloat16>;
template class DepthMixer<float>;
template class DepthMixer<__nv_bfloat16>;

}  // namespace attnres::ATTNRES_BACKEND
