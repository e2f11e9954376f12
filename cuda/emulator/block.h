// One block of CUDA threads on one OS thread: runs each until it waits, wakes those whose wait is
// over, and reports what a GPU would leave undefined.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/emulator/fiber.h"
#include "cuda_runtime.h"

namespace cuda_emulator {

/// What a kernel did wrong: "kernel NAME, block (x, y, z), thread (x, y, z): what, FILE:LINE".
struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// In which order threads that could all run are taken: results must not depend on it.
enum class ThreadOrder { forward, reverse, shuffle };

class Block {
 public:
  Block();
  ~Block();

  /// Runs one block to its end.  Throws KernelError.
  void run(const char* kernel, dim3 grid, dim3 block, uint3 index, std::size_t shared_bytes,
           const std::function<void()>& body, ThreadOrder order, unsigned seed);

  // Called by the running thread.
  std::uint64_t meet(Collective operation, unsigned mask, std::uint64_t value, int argument,
                     CallSite site);
  void barrier(CallSite site);
  int current() const { return current_; }
  void* shared() { return shared_; }

 private:
  enum class State : unsigned char { fresh, ready, at_barrier, in_meeting, done };
  struct Thread {
    State state = State::fresh;
    CallSite site{nullptr, 0};  // where it waits
    std::uint64_t result = 0;
    Fiber* fiber = nullptr;
  };
  // What ThreadSanitizer orders a barrier by: one tag for the even ones and one for the odd,
  // because a late thread may observe its barrier's tag when early ones have published the next
  // barrier's.
  struct Turns {
    char tags[2];
    int turn = 0;
  };
  // Lanes of one warp that meet for one operation.
  struct Meeting {
    unsigned mask = 0, arrived = 0;  // mask 0: nobody meets
    Collective operation{};
    CallSite site{nullptr, 0};
    std::uint64_t values[32];
    int arguments[32];
    Turns turns;
  };
  // Masks that meet at the same time share no lane, and a mask of one lane never waits.
  struct Warp {
    unsigned exited = 0;
    Meeting meetings[16];
  };
  // What went wrong, kept as plain data: text is made after the thread has been left.
  enum class Fault {
    none,
    left_before_barrier,
    barrier_at_two_places,
    not_in_own_mask,
    lane_exited,
    left_meeting,
    shuffle_outside_mask,
    different_collectives,
    deadlock,
    threw
  };
  struct Failure {
    Fault fault = Fault::none;
    int thread = 0, other = 0;
    unsigned mask = 0;
    CallSite site{nullptr, 0}, other_site{nullptr, 0};
    char text[200] = {};
  };

  static void enter();
  void run_body();
  void resume(int thread);
  void wait(State state, CallSite site);
  void leave();
  void wake(int thread);
  int next_ready();
  void complete(int warp, Meeting& meeting);
  void check_barrier_after_exit();
  [[noreturn]] void fail(const Failure& failure);
  [[noreturn]] void abandon();
  Failure deadlock() const;
  std::string describe(const Failure& failure) const;
  std::string name_of(int thread) const;

  const char* kernel_ = nullptr;
  dim3 grid_, shape_;
  uint3 index_{};
  const std::function<void()>* body_ = nullptr;
  int size_ = 0, done_ = 0, at_barrier_ = 0, current_ = -1;
  CallSite barrier_site_{nullptr, 0};
  Turns barrier_turns_;
  ThreadOrder order_ = ThreadOrder::forward;
  std::mt19937 random_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> ready_;  // a ring: nothing is allocated while a thread of the kernel runs
  std::size_t ready_first_ = 0, ready_count_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
  Context scheduler_;
  Failure failure_;
  void* shared_ = nullptr;
  std::size_t shared_capacity_ = 0;
};

/// The block that the calling OS thread is running, nullptr outside of kernels.
Block* current_block();

}  // namespace cuda_emulator
