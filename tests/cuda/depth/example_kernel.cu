// Copy this file to have a kernel of yours checked: docs/adding-a-kernel.md walks through it.
// It holds one kernel, the forward pass of a site in float, and the function that feeds it.
#include "tests/cuda/depth/example_kernel.h"

#include "cuda/device/launch.h"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vector_io.cuh"
#include "reference/depth/plan.h"

namespace attnres::ATTNRES_BACKEND {
namespace {

// ---- 1. The kernel.  One warp per token; two passes over the sources. ----
//   s_k[h] = r_k <w, v_k> within head h;   a = softmax over k;   o = sum_k a_k v_k
__global__ void example_forward(const float* bank, const int* sources, int S, int N, int D, int H,
                                float eps, const float* w, float* weights, float* output) {
  ATTNRES_DYNAMIC_SHARED(float, a);  // [S, H]
  const int n = int(blockIdx.x), lane = int(threadIdx.x), C = D / H;
  for (int k = 0; k < S; ++k) {
    const float* v = bank + (std::int64_t(sources[k]) * N + n) * D;
    float squares = 0;
    for (int c = lane; c < D; c += 32) squares += v[c] * v[c];
    const float r = rsqrtf(segment_sum(squares, 32) / float(D) + eps);
    for (int h = 0; h < H; ++h) {
      float dot = 0;
      for (int c = h * C + lane; c < (h + 1) * C; c += 32) dot += w[c] * v[c];
      dot = segment_sum(dot, 32);
      if (lane == 0) a[k * H + h] = r * dot;
    }
  }
  __syncwarp();
  for (int h = lane; h < H; h += 32) {
    float maximum = a[h], sum = 0;
    for (int k = 1; k < S; ++k) maximum = fmaxf(maximum, a[k * H + h]);
    for (int k = 0; k < S; ++k) sum += expf(a[k * H + h] - maximum);
    for (int k = 0; k < S; ++k) {
      a[k * H + h] = expf(a[k * H + h] - maximum) / sum;
      weights[(std::int64_t(k) * N + n) * H + h] = a[k * H + h];
    }
  }
  __syncwarp();
  for (int c = lane; c < D; c += 32) {
    float o = 0;
    for (int k = 0; k < S; ++k)
      o += a[k * H + c / C] * bank[(std::int64_t(sources[k]) * N + n) * D + c];
    output[std::int64_t(n) * D + c] = o;
  }
}

DeviceArray<float> upload(const auto& values) {
  std::vector<float> floats(values.data(), values.data() + values.size());
  return DeviceArray<float>(floats);
}

}  // namespace

// ---- 2. The function under test: inputs of a case in, what the kernel computed out. ----
// Tensors that it leaves empty (here every gradient) are not judged.
DepthResult example_result(const DepthCase& c, const DepthInputs& in) {
  const int N = c.tokens, D = c.channels, H = int(c.mixing.heads);
  const DepthPlan plan = make_depth_plan(c.sublayers, c.mixing);
  Matrix<double> all(Index(in.outputs.size()) * N, D);  // the bank [L+1, N, D]
  for (Index i = 0; i < Index(in.outputs.size()); ++i) all.middleRows(i * N, N) = in.outputs[i];
  const DeviceArray<float> bank = upload(all);
  DepthResult out(c);
  for (Index site = 1; site <= plan.sites(); ++site) {
    const std::vector<int> list(plan.sources[site].begin(), plan.sources[site].end());
    const int S = int(list.size());
    const DeviceArray<int> sources(list);
    const DeviceArray<float> w =
        upload(Vector<double>(in.queries[site].cwiseProduct(in.key_gains[site])));
    DeviceArray<float> weights(std::size_t(S) * N * H), output(std::size_t(N) * D);
    launch("example_forward", {unsigned(N), 32, sizeof(float) * std::size_t(S * H)},
           example_forward, bank.data(), sources.data(), S, N, D, H, float(c.eps), w.data(),
           weights.data(), output.data());
    const auto o = output.download(), a = weights.download();
    out.inputs[site] = Matrix<double>::NullaryExpr(
        N, D, [&](Index n, Index d) { return double(o[std::size_t(n * D + d)]); });
    out.weights[site] = Matrix<double>::NullaryExpr(N, S * H, [&](Index n, Index kh) {
      return double(a[std::size_t((kh / H * N + n) * H + kh % H)]);
    });
  }
  return out;
}

}  // namespace attnres::ATTNRES_BACKEND
