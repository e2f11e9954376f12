// Fibers: a function with its own stack that can stop in the middle and go on later.
// A CUDA thread is one; switching is a few instructions, so that millions of waits are affordable.
#pragma once

#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define ATTNRES_EMULATOR_UCONTEXT 1
#endif
#ifdef ATTNRES_EMULATOR_UCONTEXT
#include <ucontext.h>
#endif

namespace cuda_emulator {

/// A place to stop and go on: an OS thread's own stack, or a fiber's.
struct Context {
#ifdef ATTNRES_EMULATOR_UCONTEXT
  ucontext_t ucontext{};
#else
  void* stack_pointer = nullptr;
#endif
  // What the sanitizers must be told about a stack.
  void* stack_bottom = nullptr;
  std::size_t stack_size = 0;
  void* fake_stack = nullptr;
  void* tsan_fiber = nullptr;
};

/// Stops the running context `from` and goes on with `to`.  A context that `ends` is never resumed.
void switch_context(Context& from, Context& to, bool ends = false);
/// The first thing to call on a stack that was just switched to.
void arrived_in(Context& context, Context& from);

/// A stack of its own, between guard pages.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next switch to this fiber calls `entry`, which must never return.  What ran here before is
  /// forgotten, without destructors.
  void start(void (*entry)());
  Context& context() { return context_; }

 private:
  Context context_;
  void* memory_;
};

}  // namespace cuda_emulator
