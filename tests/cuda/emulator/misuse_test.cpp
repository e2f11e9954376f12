// One broken kernel for every mistake that the emulator must report, by block, thread, file and
// line.  On a GPU most of these hang, or work by chance.
#include <cuda_runtime.h>

#include "cuda/device/launch.h"
#include "cuda/device/vector_io.cuh"
#include "tests/support.h"

using namespace attnres;
using namespace attnres::emulated;
using attnres::test::contains;
using attnres::test::error_of;

namespace {

constexpr const char* kFile = "misuse_test.cpp:";

__global__ void leaves_before_the_barrier() {
  if (threadIdx.x == 3) return;
  __syncthreads();
}

__global__ void waits_at_two_barriers() {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}

__global__ void names_a_lane_that_left(int* out) {
  if (threadIdx.x >= 16) return;
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, int(threadIdx.x), 1);
}

__global__ void leaves_while_others_wait(int* out) {
  if (threadIdx.x == 31) return;  // the last to run: the others are waiting already
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, int(threadIdx.x), 1);
}

__global__ void waits_for_lanes_at_a_barrier(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, int(threadIdx.x), 1);
  __syncthreads();
}

__global__ void is_not_in_its_own_mask(int* out) {
  out[threadIdx.x] = __shfl_sync(0x0000ffffu, int(threadIdx.x), 0);
}

__global__ void reads_a_lane_outside_the_mask(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0x0000ffffu, int(threadIdx.x), 20);
}

__global__ void mixes_collectives(int* out) {
  if (threadIdx.x < 16)
    out[threadIdx.x] = __any_sync(0xffffffffu, 1);
  else
    out[threadIdx.x] = __all_sync(0xffffffffu, 1);
}

__global__ void uses_a_full_mask_in_half_a_warp(int* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xffffffffu, int(threadIdx.x), 1);
}

__global__ void throws() {
  if (threadIdx.x == 5) throw std::runtime_error("five");
}

__global__ void loads_eight(const float* row) { (void)load<float, 8>(row + 8 * threadIdx.x); }

__global__ void does_nothing() {}

template <class... P, class... A>
std::string error(const Grid& grid, void (*kernel)(P...), A... arguments) {
  return error_of([&] { launch("broken", grid, kernel, arguments...); });
}

}  // namespace

TEST_CASE("a thread that leaves before a barrier") {
  const std::string e = error({2, 64}, leaves_before_the_barrier);
  CAPTURE(e);
  CHECK(contains(e, "kernel broken, block (0, 0, 0), thread (3, 0, 0)"));
  CHECK(contains(e, "left the kernel before __syncthreads"));
  CHECK(contains(e, kFile));
}

TEST_CASE("a barrier reached at two places") {
  const std::string e = error({1, 64}, waits_at_two_barriers);
  CAPTURE(e);
  CHECK(contains(e, "thread (32, 0, 0): __syncthreads at"));
  CHECK(contains(e, "while thread (0, 0, 0) waits at"));
  CHECK(e.find(kFile) != e.rfind(kFile));  // both places are named
}

TEST_CASE("a mask that names a lane which has left") {
  DeviceArray<int> out(std::size_t(64));
  ::setenv("ATTNRES_THREAD_ORDER", "reverse", 1);
  const std::string e = error({1, 32}, names_a_lane_that_left, out.data());
  ::unsetenv("ATTNRES_THREAD_ORDER");
  CAPTURE(e);
  CHECK(contains(e, "mask 0xffffffff names thread (16, 0, 0), which has left the kernel"));
  CHECK(contains(e, kFile));
  const std::string f = error({1, 16}, uses_a_full_mask_in_half_a_warp, out.data());
  CAPTURE(f);
  CHECK(contains(f, "or does not exist"));
}

TEST_CASE("a lane that leaves while others wait for it in a warp operation") {
  DeviceArray<int> out(std::size_t(64));
  const std::string e = error({1, 32}, leaves_while_others_wait, out.data());
  CAPTURE(e);
  CHECK(contains(e, "thread (31, 0, 0): left the kernel while named in the mask"));
  CHECK(contains(e, kFile));
}

TEST_CASE("a lane that is named and waits elsewhere") {
  DeviceArray<int> out(std::size_t(64));
  const std::string e = error({1, 32}, waits_for_lanes_at_a_barrier, out.data());
  CAPTURE(e);
  CHECK(contains(e, "thread (0, 0, 0): waits at"));
  CHECK(contains(e, "for thread (16, 0, 0), which mask 0xffffffff names and which waits at"));
}

TEST_CASE("a mask without the calling lane, and a shuffle from a lane outside of it") {
  DeviceArray<int> out(std::size_t(64));
  const std::string e = error({1, 32}, is_not_in_its_own_mask, out.data());
  CAPTURE(e);
  CHECK(contains(e, "thread (16, 0, 0): mask 0x0000ffff does not name the calling lane"));
  const std::string f = error({1, 32}, reads_a_lane_outside_the_mask, out.data());
  CAPTURE(f);
  CHECK(contains(f, "reads thread (20, 0, 0), which mask 0x0000ffff does not name"));
}

TEST_CASE("two different collectives in one warp") {
  DeviceArray<int> out(std::size_t(64));
  const std::string e = error({1, 32}, mixes_collectives, out.data());
  CAPTURE(e);
  CHECK(contains(e, "thread (16, 0, 0): warp operation at"));
  CHECK(contains(e, "while thread (0, 0, 0) of the same warp waits in another at"));
}

TEST_CASE("a wide load from an address that is not aligned") {
  DeviceArray<float> rows(std::size_t(64));
  CHECK(error({1, 4}, loads_eight, rows.data()) == "");
  const std::string e = error({1, 4}, loads_eight, rows.data() + 1);
  CAPTURE(e);
  CHECK(
      contains(e, "thread (0, 0, 0): threw: a load or store of 16 bytes at an address that is 4"));
}

TEST_CASE("configurations that a GPU refuses") {
  CHECK(contains(error({1, 1025}, does_nothing), "a block of (1025, 1, 1) threads"));
  CHECK(contains(error({1, 0}, does_nothing), "a block of (0, 1, 1) threads"));
  CHECK(contains(error({0, 32}, does_nothing), "a grid of (0, 1, 1) blocks"));
  CHECK(contains(error({1u << 31, 32}, does_nothing), "a grid of (2147483648, 1, 1) blocks"));
  CHECK(contains(error({1, 32, 240 << 10}, does_nothing),
                 "245760 bytes of dynamic shared memory; a block has 232448"));
  CHECK(contains(error_of([] {
                   cuda_emulator::run_grid("broken", {dim3(1), dim3(1, 1, 65)}, does_nothing);
                 }),
                 "64 in z"));
}

TEST_CASE("an exception in a kernel names its thread, and the next launch works") {
  const std::string e = error({1, 32}, throws);
  CAPTURE(e);
  CHECK(contains(e, "thread (5, 0, 0): threw: five"));
  CHECK(error({4, 256}, does_nothing) == "");
}

TEST_CASE("an unknown order of threads is refused") {
  ::setenv("ATTNRES_THREAD_ORDER", "sideways", 1);
  const std::string e = error({1, 32}, does_nothing);
  ::unsetenv("ATTNRES_THREAD_ORDER");
  CHECK(contains(e, "\"sideways\"; it can be forward, reverse or shuffle:SEED"));
}
