// The program of docs/emulator.md's debugger session: two tokens, one source, two heads of eight
// channels; a block computes one token's dot products <w, v>_h.
#include <cuda_runtime.h>

#include <cstdio>

#include "cuda/device/launch.h"

using namespace attnres::emulated;

namespace {

constexpr int kChannels = 16, kHeadChannels = 8;

__global__ void head_dots(const float* v, const float* w, float* dots) {
  __shared__ float products[kChannels];
  const int c = int(threadIdx.x), n = int(blockIdx.x);
  const float product = w[c] * v[n * kChannels + c];
  products[c] = product;
  __syncthreads();
  float sum = 0;
  const int head = c / kHeadChannels;
  for (int i = 0; i < kHeadChannels; ++i) sum += products[head * kHeadChannels + i];
  if (c % kHeadChannels == 0) dots[n * 2 + head] = sum;  // one thread per head
}

}  // namespace

int main() {
  std::vector<float> v, w;
  for (int c = 0; c < 2 * kChannels; ++c) v.push_back(float(c));
  for (int c = 0; c < kChannels; ++c) w.push_back(c < kHeadChannels ? 1.0f : 0.5f);
  DeviceArray<float> rows(v), query(w), dots(std::size_t(4));
  launch("head_dots", {2, kChannels}, head_dots, rows.data(), query.data(), dots.data());
  for (const float dot : dots.download()) std::printf("%g ", double(dot));
  std::printf("\n");
}
