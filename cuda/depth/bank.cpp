#include "cuda/depth/bank.h"

#include <array>
#include <stdexcept>
#include <string>

#include "cuda/depth/byte_model.h"

namespace attnres::ATTNRES_BACKEND {
namespace {

constexpr int64_t kMaxSharedBytes = 200 << 10;  // of the 227 KiB that a block can have

std::size_t size(int64_t a, int64_t b = 1, int64_t c = 1) { return std::size_t(a * b * c); }

// In the order of DepthBank's members.
template <class T>
std::array<std::size_t, 11> bank_sizes(const DepthPlan& plan, const DepthShape& s, int group) {
  const int64_t N = s.tokens, D = s.channels, H = s.mixing.heads, L = s.sublayers;
  if (!s.attends()) return {};
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

int choose_group(const DepthPlan& plan, const DepthShape& shape, int row_bytes) {
  if (!shape.attends() || shape.generation != Generation::grouped) return 1;
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

void DepthShape::validate() const {
  const int H = mixing.heads;
  if (sublayers < 1 || tokens < 1) throw std::invalid_argument("no sublayers or no tokens");
  if (channels < 8 || channels % 8 != 0)
    throw std::invalid_argument(std::to_string(channels) +
                                " channels: the kernels take a multiple of 8");
  if (H < 1 || channels % H != 0)
    throw std::invalid_argument(std::to_string(channels) + " channels do not divide into " +
                                std::to_string(H) + " depth heads");
  if (!attends() || generation == Generation::naive) return;
  const auto row = site_layout(channels, H);
  // A block keeps the logits of its tokens, [S, H] each, in shared memory.
  const int64_t logits = row ? int64_t(row->teams) * (sublayers + 1) * H * 4 : 0;
  if (!row || logits > kMaxSharedBytes)
    throw std::invalid_argument(std::to_string(H) + " depth heads of " +
                                std::to_string(channels / H) + " channels over " +
                                std::to_string(sublayers) +
                                " sublayers fit no block of threads; the naive generation takes "
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

template struct DepthBank<float>;
template struct DepthBank<__nv_bfloat16>;

}  // namespace attnres::ATTNRES_BACKEND
