// Launching a grid on the emulator, and what it counted: blocks are dealt to OS threads.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda_runtime.h"

namespace cuda_emulator {

struct GridShape {
  dim3 grid, block;
  std::size_t shared_bytes = 0;  ///< dynamic shared memory per block
};

/// Runs `body` once for every thread of the grid and returns when all are done.  Throws KernelError
/// for a configuration that a GPU would refuse and for what block.h finds wrong.
/// Environment: ATTNRES_THREAD_ORDER = forward (default), reverse or shuffle:SEED.
void run_grid(const char* kernel, const GridShape& shape, const std::function<void()>& body);

/// The dynamic shared memory of the running block, filled with 0xFF at its start.
void* dynamic_shared_memory();

/// Bytes that kernels moved through counted loads and stores (device/vector_io.cuh).
/// Parameters (queries, gains, their gradients, the plan) are few, read once per block and stay in
/// the cache; they are counted apart from what grows with the number of tokens.
struct Traffic {
  std::uint64_t read = 0, written = 0, parameters = 0;

  std::uint64_t tokens() const { return read + written; }
  Traffic& operator+=(const Traffic& other);
};

void count_read(std::size_t bytes);
void count_written(std::size_t bytes);
void count_parameters(std::size_t bytes);

/// Thrown by counted loads and stores whose address is no multiple of their width.
struct MisalignedAccess : std::runtime_error {
  MisalignedAccess(const void* address, int bytes);
};

struct LaunchRecord {
  std::string kernel;
  GridShape shape;
  Traffic traffic;
};

/// Keeps a record of every launch while it lives; recorders may nest.
class LaunchRecorder {
 public:
  LaunchRecorder();
  ~LaunchRecorder();
  LaunchRecorder(const LaunchRecorder&) = delete;
  LaunchRecorder& operator=(const LaunchRecorder&) = delete;

  const std::vector<LaunchRecord>& launches() const { return launches_; }
  /// Of all launches whose kernel's name contains `part`.
  Traffic total(const std::string& part = "") const;

 private:
  friend void run_grid(const char*, const GridShape&, const std::function<void()>&);
  std::vector<LaunchRecord> launches_;
};

}  // namespace cuda_emulator
