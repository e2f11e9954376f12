// Kernels with one bug each, for a sanitizer to find: planted_bugs NAME.  Without a bug ("none")
// the same code must run clean.
#include <cuda_runtime.h>

#include <cstdio>
#include <string>

#include "cuda/device/launch.h"

using namespace attnres::emulated;

namespace {

constexpr unsigned kThreads = 64;

__global__ void reads_past_the_end(const float* in, float* out, int shift) {
  out[threadIdx.x] = in[int(threadIdx.x) + shift];  // out of bounds for the last threads
}

__global__ void writes_past_dynamic_shared(float* out, int shift) {
  ATTNRES_DYNAMIC_SHARED(float, shared);
  shared[int(threadIdx.x) + shift] = 1.0f;
  out[threadIdx.x] = shared[threadIdx.x];
}

__global__ void writes_past_static_shared(float* out, int shift) {
  __shared__ float shared[kThreads];
  shared[int(threadIdx.x) + shift] = 1.0f;
  out[threadIdx.x] = shared[threadIdx.x];
}

__global__ void neighbour(float* out, bool barrier) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = float(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = shared[(threadIdx.x + 1) % kThreads];  // races where there is no barrier
}

// Between two barriers: a race that must be seen although barriers come before and after it.
__global__ void neighbour_between(float* out, bool barrier) {
  __shared__ float shared[kThreads];
  shared[threadIdx.x] = 0;
  __syncthreads();
  shared[threadIdx.x] = float(threadIdx.x);
  if (barrier) __syncthreads();
  const float next = shared[(threadIdx.x + 1) % kThreads];
  __syncthreads();
  out[blockIdx.x * kThreads + threadIdx.x] = next;
}

__global__ void warp_neighbour(float* out, bool barrier) {
  __shared__ float shared[32];
  __syncwarp();
  shared[threadIdx.x] = float(threadIdx.x);
  if (barrier) __syncwarp();
  const float next = shared[(threadIdx.x + 1) % 32];
  __syncwarp();
  out[threadIdx.x] = next;
}

__global__ void misaligned(const float* in, float* out, int shift) {
  const float4* wide = reinterpret_cast<const float4*>(in + shift);
  out[threadIdx.x] = wide->x + wide->y;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string bug = argc > 1 ? argv[1] : "none";
  const int shift = 1;
  DeviceArray<float> in(std::vector<float>(kThreads, 1.0f)),
      out(std::vector<float>(kThreads, 0.0f));
  const std::size_t bytes = kThreads * sizeof(float);
  launch("reads_past_the_end", {1, kThreads}, reads_past_the_end, in.data(), out.data(),
         bug == "global" ? shift : 0);
  launch("writes_past_dynamic_shared", {1, kThreads, bytes}, writes_past_dynamic_shared, out.data(),
         bug == "dynamic" ? shift : 0);
  launch("writes_past_static_shared", {1, kThreads}, writes_past_static_shared, out.data(),
         bug == "static" ? shift : 0);
  launch("neighbour", {1, kThreads}, neighbour, out.data(), bug != "barrier");
  launch("neighbour_between", {1, kThreads}, neighbour_between, out.data(), bug != "between");
  launch("warp_neighbour", {1, 32}, warp_neighbour, out.data(), bug != "syncwarp");
  launch("misaligned", {1, kThreads}, misaligned, in.data(), out.data(),
         bug == "misaligned" ? shift : 0);
  std::printf("finished\n");
}
