// Launching a kernel, the same way in both builds.  Together with reduce.cuh and vector_io.cuh this
// is all that knows there are two.
#pragma once

#include <tuple>

#include "cuda/device/backend.h"
#include "cuda/device/memory.h"

#ifdef ATTNRES_EMULATED
#include "cuda/emulator/launch.h"
#endif

namespace attnres::ATTNRES_BACKEND {

struct Grid {
  unsigned blocks = 1, threads = 1;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory per block
  cudaStream_t stream = nullptr;
};

/// Runs kernel(arguments...) on the grid; arguments are converted to the kernel's parameter types.
/// Throws DeviceError, on the emulator KernelError, with the kernel's name.  On a GPU what goes
/// wrong inside a kernel shows at a later call; CUDA_LAUNCH_BLOCKING=1 in the environment brings it
/// here.
template <class... Parameters, class... Arguments>
void launch(const char* name, const Grid& grid, void (*kernel)(Parameters...),
            Arguments... arguments) {
#ifdef ATTNRES_EMULATED
  const std::tuple<Parameters...> converted(static_cast<Parameters>(arguments)...);
  cuda_emulator::run_grid(name, {grid.blocks, grid.threads, grid.shared_bytes},
                          [&] { std::apply(kernel, converted); });
#else
  if (grid.shared_bytes > 40 * 1024)  // 48 KiB, static shared memory included, need no asking
    check_device(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      int(grid.shared_bytes)),
                 name);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(grid.blocks);
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = grid.stream;
  check_device(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), name);
#endif
}

/// Streaming multiprocessors of the current device: how many blocks are worth having.
inline unsigned multiprocessors() {
  int device = 0, count = 0;
  check_device(cudaGetDevice(&device), "cudaGetDevice");
  check_device(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
               "cudaDeviceGetAttribute");
  return unsigned(count);
}

}  // namespace attnres::ATTNRES_BACKEND

/// Declares `name`, the block's dynamic shared memory as an array of `type`.
#ifdef ATTNRES_EMULATED
#define ATTNRES_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(cuda_emulator::dynamic_shared_memory())
#else
#define ATTNRES_DYNAMIC_SHARED(type, name)                    \
  extern __shared__ __align__(16) unsigned char name##_raw[]; \
  type* const name = reinterpret_cast<type*>(name##_raw)
#endif
