// What CUDA promises, kept by the emulator: barriers, warp operations, memory, counters, order.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdlib>
#include <numeric>

#include "cuda/device/launch.h"
#include "cuda/device/reduce.cuh"
#include "cuda/device/vector_io.cuh"
#include "cuda/gradcheck/depth_case.h"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::emulated;

namespace {

// Runs `body` with the threads of every block taken in another order.
template <class Body>
void in_order(const char* order, const Body& body) {
  ::setenv("ATTNRES_THREAD_ORDER", order, 1);
  body();
  ::unsetenv("ATTNRES_THREAD_ORDER");
}

const char* const kOrders[] = {"forward", "reverse", "shuffle:1", "shuffle:2"};

// Each thread passes its value to the next through shared memory, again and again.
__global__ void rotate(int* values, int rounds) {
  __shared__ int shared[64];
  int value = values[threadIdx.x];
  for (int round = 0; round < rounds; ++round) {
    shared[threadIdx.x] = value;
    __syncthreads();
    value = shared[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
  }
  values[threadIdx.x] = value;
}

__global__ void where(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = int(1000 * block + thread);
}

__global__ void shuffles(int* out) {
  const int lane = int(threadIdx.x), value = 100 + lane;
  int* mine = out + lane * 6;
  mine[0] = __shfl_sync(0xffffffffu, value, 5);
  mine[1] = __shfl_sync(0xffffffffu, value, 5, 8);
  mine[2] = __shfl_xor_sync(0xffffffffu, value, 3);
  mine[3] = __shfl_down_sync(0xffffffffu, value, 30);
  mine[4] = __shfl_up_sync(0xffffffffu, value, 2, 4);
  mine[5] = lane < 8 ? __shfl_xor_sync(0xffu, value, 1) : __shfl_xor_sync(0xffffff00u, value, 2);
}

__global__ void votes(unsigned* out) {
  const int lane = int(threadIdx.x) % 32;
  const unsigned ballot = __ballot_sync(0xffffffffu, lane % 3 == 0);
  const int any = __any_sync(0xffffffffu, lane == 7), all = __all_sync(0xffffffffu, lane < 31);
  if (lane == 0) {
    out[0] = ballot;
    out[1] = unsigned(any);
    out[2] = unsigned(all);
  }
}

__global__ void sums(const float* in, float* out, int width) {
  out[threadIdx.x] = segment_sum(in[threadIdx.x], width);
}

__global__ void count(unsigned* total, float* sum) {
  atomicAdd(total, 1u);
  atomicMax(sum, float(threadIdx.x));
}

__global__ void scratch(float* out) {
  ATTNRES_DYNAMIC_SHARED(float, shared);
  out[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
  shared[threadIdx.x] = 1.0f;
}

__global__ void copy_rows(const __nv_bfloat16* from, __nv_bfloat16* to) {
  const auto packed = load<__nv_bfloat16, 8>(from + 8 * threadIdx.x);
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = packed[i];
  store<__nv_bfloat16, 8>(to + 8 * threadIdx.x, x);
  if (threadIdx.x == 0) (void)load_parameter(from);
}

}  // namespace

TEST_CASE("a barrier separates what threads write from what they read, in any order of threads") {
  for (const char* order : kOrders) {
    std::vector<int> values(64);
    std::iota(values.begin(), values.end(), 0);
    DeviceArray<int> device(values);
    in_order(order, [&] { launch("rotate", {1, 64}, rotate, device.data(), 100); });
    const auto result = device.download();
    for (int i = 0; i < 64; ++i) CHECK(result[i] == (i + 100) % 64);
  }
}

TEST_CASE("threads of three-dimensional grids and blocks know where they are") {
  DeviceArray<int> out(std::size_t(2 * 3 * 2 * 4 * 2 * 3));
  int* const data = out.data();
  cuda_emulator::run_grid("where", {dim3(2, 3, 2), dim3(4, 2, 3)}, [&] { where(data); });
  const auto result = out.download();
  for (int block = 0; block < 12; ++block)
    for (int thread = 0; thread < 24; ++thread)
      CHECK(result[block * 24 + thread] == 1000 * block + thread);
}

TEST_CASE("shuffles read the lane that CUDA defines, also in segments and in parts of a warp") {
  for (const char* order : kOrders) {
    DeviceArray<int> out(std::size_t(32 * 6));
    in_order(order, [&] { launch("shuffles", {1, 32}, shuffles, out.data()); });
    const auto result = out.download();
    for (int lane = 0; lane < 32; ++lane) {
      const int* mine = &result[lane * 6];
      CHECK(mine[0] == 105);
      CHECK(mine[1] == 100 + (lane & ~7) + 5);
      CHECK(mine[2] == 100 + (lane ^ 3));
      CHECK(mine[3] == 100 + (lane + 30 < 32 ? lane + 30 : lane));
      CHECK(mine[4] == 100 + (lane % 4 >= 2 ? lane - 2 : lane));
      CHECK(mine[5] == 100 + (lane < 8 ? lane ^ 1 : lane ^ 2));
    }
  }
}

TEST_CASE("votes collect every lane of the mask") {
  DeviceArray<unsigned> out(std::size_t(3));
  launch("votes", {1, 32}, votes, out.data());
  const auto result = out.download();
  CHECK(result[0] == 0x49249249u);
  CHECK(result[1] == 1);
  CHECK(result[2] == 0);
}

TEST_CASE("a fused sum over lanes has the bits of the shuffles that it stands for") {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(64);
  for (float& x : values) x = normal(engine);
  DeviceArray<float> in(values), fused(std::size_t(64)), shuffled(std::size_t(64));
  for (const int width : {1, 2, 8, 32}) {
    launch("sums", {1, 64}, sums, in.data(), fused.data(), width);
    fuse_reductions(false);
    launch("sums", {1, 64}, sums, in.data(), shuffled.data(), width);
    fuse_reductions(true);
    CHECK(fused.download() == shuffled.download());
    double sum = 0;
    for (int lane = 0; lane < width; ++lane) sum += double(values[lane]);
    CHECK(fused.download()[0] == doctest::Approx(sum).epsilon(1e-5));
  }
}

TEST_CASE("atomics count every thread of every block") {
  DeviceArray<unsigned> total(std::vector<unsigned>{0});
  DeviceArray<float> largest(std::vector<float>{0});
  launch("count", {50, 96}, count, total.data(), largest.data());
  CHECK(total.download()[0] == 50 * 96);
  CHECK(largest.download()[0] == 95.0f);
}

TEST_CASE("memory that nobody wrote is NaN: allocations, and shared memory of every block") {
  DeviceArray<float> fresh(std::size_t(4));
  for (const float x : fresh.download()) CHECK(std::isnan(x));
  DeviceArray<float> out(std::size_t(3 * 32));
  for (int repeat = 0; repeat < 2; ++repeat) {
    launch("scratch", {3, 32, 32 * sizeof(float)}, scratch, out.data());
    for (const float x : out.download()) CHECK(std::isnan(x));
  }
}

TEST_CASE("bfloat16 rounds to nearest, ties to even") {
  std::mt19937_64 engine(2);
  for (int i = 0; i < 10000; ++i) {
    const float x = std::bit_cast<float>(std::uint32_t(engine()));
    if (!std::isfinite(x) || std::abs(x) < 1e-30f || std::abs(x) > 1e38f) continue;
    CHECK(double(float(__nv_bfloat16(x))) == round_bf16(double(x)));
  }
  CHECK(float(__nv_bfloat16(1.0f + 1.0f / 256)) == 1.0f);
  CHECK(float(__nv_bfloat16(1.0f + 3.0f / 256)) == 1.0f + 2.0f / 128);
  CHECK(std::isnan(float(__nv_bfloat16(NAN))));
  CHECK(std::isinf(float(__nv_bfloat16(3.4e38f))));
}

TEST_CASE("counters tell what a kernel read and wrote, parameters apart") {
  DeviceArray<__nv_bfloat16> from(std::size_t(256)), to(std::size_t(256));
  cuda_emulator::LaunchRecorder recorder;
  launch("copy_rows", {1, 32}, copy_rows, from.data(), to.data());
  REQUIRE(recorder.launches().size() == 1);
  CHECK(recorder.launches()[0].kernel == "copy_rows");
  CHECK(recorder.total().read == 512);
  CHECK(recorder.total().written == 512);
  CHECK(recorder.total().parameters == 2);
  CHECK(recorder.total("another kernel").read == 0);
}

TEST_CASE("freeing what was never allocated is refused") {
  int on_host = 0;
  CHECK(cudaFree(&on_host) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
}
