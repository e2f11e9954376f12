#include "cuda/emulator/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "cuda_runtime.h"  // for ATTNRES_EMULATOR_ASAN

#ifdef ATTNRES_EMULATOR_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef ATTNRES_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#define ATTNRES_EMULATOR_VALGRIND 1
#endif

namespace cuda_emulator {
namespace {

#ifdef ATTNRES_EMULATOR_ASAN
constexpr std::size_t kStackBytes = 512 << 10;  // red zones make frames several times as large
#else
constexpr std::size_t kStackBytes = 128 << 10;
#endif

}  // namespace

#ifndef ATTNRES_EMULATOR_UCONTEXT

// Saves the registers that a function call must preserve on the stack that is left, and restores
// them from the one that is entered.  %rdi / x0: where to keep the stack pointer; %rsi / x1: the
// stack pointer to go on with.
extern "C" void attnres_switch_stack(void** keep, void* next);

#if defined(__x86_64__)
asm(R"(
.text
.globl attnres_switch_stack
.type attnres_switch_stack, @function
attnres_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size attnres_switch_stack, .-attnres_switch_stack
)");
constexpr std::size_t kSavedWords = 6;
#else
asm(R"(
.text
.globl attnres_switch_stack
.type attnres_switch_stack, %function
attnres_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size attnres_switch_stack, .-attnres_switch_stack
)");
#endif

#endif

void switch_context(Context& from, Context& to, [[maybe_unused]] bool ends) {
#ifdef ATTNRES_EMULATOR_ASAN
  __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack, to.stack_bottom, to.stack_size);
#endif
#ifdef ATTNRES_EMULATOR_TSAN
  // No synchronisation: only barriers order what threads of a block do.
  __tsan_switch_to_fiber(to.tsan_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#ifdef ATTNRES_EMULATOR_UCONTEXT
  swapcontext(&from.ucontext, &to.ucontext);
#else
  attnres_switch_stack(&from.stack_pointer, to.stack_pointer);
#endif
  arrived_in(from, to);
}

void arrived_in([[maybe_unused]] Context& context, [[maybe_unused]] Context& from) {
#ifdef ATTNRES_EMULATOR_ASAN
  // Learns where the stack that was left lies: that of an OS thread is not known before.
  __sanitizer_finish_switch_fiber(context.fake_stack, const_cast<const void**>(&from.stack_bottom),
                                  &from.stack_size);
#endif
}

Fiber::Fiber() {
  const std::size_t page = std::size_t(sysconf(_SC_PAGESIZE));
  memory_ = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory_ == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory_, page, PROT_NONE);  // stacks grow down, into this page when they overflow
  context_.stack_bottom = static_cast<char*>(memory_) + page;
  context_.stack_size = kStackBytes;
#ifdef ATTNRES_EMULATOR_TSAN
  context_.tsan_fiber = __tsan_create_fiber(0);
#endif
#ifdef ATTNRES_EMULATOR_VALGRIND
  (void)VALGRIND_STACK_REGISTER(context_.stack_bottom,
                                static_cast<char*>(context_.stack_bottom) + kStackBytes);
#endif
}

Fiber::~Fiber() {
#ifdef ATTNRES_EMULATOR_TSAN
  __tsan_destroy_fiber(context_.tsan_fiber);
#endif
  munmap(memory_, kStackBytes + std::size_t(sysconf(_SC_PAGESIZE)));
}

void Fiber::start(void (*entry)()) {
  context_.fake_stack = nullptr;
#ifdef ATTNRES_EMULATOR_ASAN
  // A body that was left in its middle never took its frames' red zones down.
  __asan_unpoison_memory_region(context_.stack_bottom, context_.stack_size);
#endif
#ifdef ATTNRES_EMULATOR_UCONTEXT
  getcontext(&context_.ucontext);
  context_.ucontext.uc_stack.ss_sp = context_.stack_bottom;
  context_.ucontext.uc_stack.ss_size = context_.stack_size;
  context_.ucontext.uc_link = nullptr;
  makecontext(&context_.ucontext, entry, 0);
#else
  auto* top = reinterpret_cast<std::uintptr_t*>(static_cast<char*>(context_.stack_bottom) +
                                                context_.stack_size);
#if defined(__x86_64__)
  // `ret` takes the entry from a multiple of 16, so that it starts as after a call: rsp % 16 == 8.
  std::uintptr_t* return_address = top - 2;
  *return_address = reinterpret_cast<std::uintptr_t>(entry);
  std::uintptr_t* saved = return_address - kSavedWords;
  std::memset(saved, 0, kSavedWords * sizeof *saved);
#else
  std::uintptr_t* saved = top - 20;
  std::memset(saved, 0, 160);
  saved[11] = reinterpret_cast<std::uintptr_t>(entry);  // x30, where `ret` goes
#endif
  context_.stack_pointer = saved;
#endif
}

}  // namespace cuda_emulator
