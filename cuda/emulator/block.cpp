#include "cuda/emulator/block.h"

#include <cstdlib>
#include <exception>

#ifdef ATTNRES_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace cuda_emulator {

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace {

thread_local Block* running = nullptr;

// Tells ThreadSanitizer what a barrier orders: before it happens before after it.
void publish([[maybe_unused]] void* object) {
#ifdef ATTNRES_EMULATOR_TSAN
  __tsan_release(object);
#endif
}
void observe([[maybe_unused]] void* object) {
#ifdef ATTNRES_EMULATOR_TSAN
  __tsan_acquire(object);
#endif
}

bool same_place(CallSite a, CallSite b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string text(CallSite site) { return std::string(site.file) + ":" + std::to_string(site.line); }

std::string text(unsigned x, unsigned y, unsigned z) {
  return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
}

template <class Combine>
void butterfly(std::uint64_t* values, int width, const Combine& combine) {
  float lanes[32], next[32];
  for (int lane = 0; lane < 32; ++lane) lanes[lane] = detail::from_bits<float>(values[lane]);
  for (int step = width / 2; step > 0; step /= 2) {
    for (int lane = 0; lane < 32; ++lane) next[lane] = combine(lanes[lane], lanes[lane ^ step]);
    std::memcpy(lanes, next, sizeof lanes);
  }
  for (int lane = 0; lane < 32; ++lane) values[lane] = detail::to_bits(lanes[lane]);
}

}  // namespace

Block* current_block() { return running; }

Block::Block() = default;
Block::~Block() { std::free(shared_); }

void Block::run(const char* kernel, dim3 grid, dim3 block, uint3 index, std::size_t shared_bytes,
                const std::function<void()>& body, ThreadOrder order, unsigned seed) {
  kernel_ = kernel;
  grid_ = grid;
  shape_ = block;
  index_ = index;
  body_ = &body;
  order_ = order;
  size_ = int(block.x * block.y * block.z);
  done_ = at_barrier_ = 0;
  failure_ = {};
  threads_.assign(std::size_t(size_), {});
  warps_.resize(std::size_t(size_ + 31) / 32);
  for (auto& warp : warps_) {
    warp.exited = 0;
    for (auto& meeting : warp.meetings) meeting.mask = 0;
  }
  // Lanes that the block is too small for count as gone.
  if (size_ % 32 != 0) warps_.back().exited = ~0u << (size_ % 32);
  if (shared_bytes != shared_capacity_) {  // exactly as large as asked for: overruns are seen
    std::free(shared_);
    shared_ = shared_bytes == 0 ? nullptr : std::aligned_alloc(16, (shared_bytes + 15) / 16 * 16);
    shared_capacity_ = shared_bytes;
  }
  if (shared_bytes > 0) std::memset(shared_, 0xff, shared_bytes);
  if (order == ThreadOrder::shuffle) random_.seed(seed);
  free_.clear();
  for (const auto& fiber : fibers_) free_.push_back(fiber.get());
  ready_.resize(std::size_t(size_));
  ready_first_ = ready_count_ = 0;
  for (int i = 0; i < size_; ++i) wake(order == ThreadOrder::reverse ? size_ - 1 - i : i);

  running = this;
  blockDim = block;
  gridDim = grid;
  blockIdx = index;
#ifdef ATTNRES_EMULATOR_TSAN
  scheduler_.tsan_fiber = __tsan_get_current_fiber();
#endif
  publish(&body_);
  while (failure_.fault == Fault::none && ready_count_ > 0) resume(next_ready());
  observe(&done_);
  if (done_ < size_) observe(&failure_);
  running = nullptr;
  if (failure_.fault == Fault::none && done_ < size_) failure_ = deadlock();
  if (failure_.fault != Fault::none) throw KernelError(describe(failure_));
}

int Block::next_ready() {
  if (order_ == ThreadOrder::shuffle) {
    const std::size_t other = (ready_first_ + random_() % ready_count_) % ready_.size();
    std::swap(ready_[ready_first_], ready_[other]);
  }
  const int thread = ready_[ready_first_];
  ready_first_ = (ready_first_ + 1) % ready_.size();
  --ready_count_;
  return thread;
}

void Block::wake(int thread) {
  if (threads_[thread].state != State::fresh) threads_[thread].state = State::ready;
  ready_[(ready_first_ + ready_count_++) % ready_.size()] = thread;
}

void Block::resume(int thread) {
  Thread& t = threads_[thread];
  if (t.state == State::fresh) {
    if (free_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      free_.push_back(fibers_.back().get());
    }
    t.fiber = free_.back();
    free_.pop_back();
    t.fiber->start(&Block::enter);
  }
  current_ = thread;
  const unsigned i = unsigned(thread);
  threadIdx = {i % shape_.x, i / shape_.x % shape_.y, i / (shape_.x * shape_.y)};
  switch_context(scheduler_, t.fiber->context());
#ifndef ATTNRES_EMULATOR_TSAN  // which must see a stack of its own for every thread of a block
  if (t.state == State::done) free_.push_back(t.fiber);
#endif
}

void Block::enter() {
  Block& block = *running;
  arrived_in(block.threads_[block.current_].fiber->context(), block.scheduler_);
  block.run_body();
  block.leave();
  block.abandon();
}

void Block::run_body() {
  observe(&body_);  // what the host and earlier blocks on this OS thread wrote
  try {
    (*body_)();
  } catch (const std::exception& error) {
    failure_.fault = Fault::threw;
    failure_.thread = current_;
    std::strncpy(failure_.text, error.what(), sizeof failure_.text - 1);
  }
  publish(&done_);
}

// The current thread has returned from the kernel.
void Block::leave() {
  Thread& t = threads_[current_];
  t.state = State::done;
  ++done_;
  Warp& warp = warps_[current_ / 32];
  const unsigned lane = 1u << (current_ % 32);
  warp.exited |= lane;
  if (failure_.fault != Fault::none) return;
  for (const Meeting& meeting : warp.meetings)
    if (meeting.mask & lane) {
      failure_.fault = Fault::left_meeting;
      failure_.thread = current_;
      failure_.site = meeting.site;
      return;
    }
  if (at_barrier_ > 0) {
    failure_.fault = Fault::left_before_barrier;
    failure_.thread = current_;
    failure_.site = barrier_site_;
  }
}

void Block::abandon() {
  switch_context(threads_[current_].fiber->context(), scheduler_, true);
  std::abort();  // nobody resumes a thread that has ended
}

void Block::fail(const Failure& failure) {
  publish(&failure_);
  failure_ = failure;
  abandon();
}

void Block::wait(State state, CallSite site) {
  Thread& t = threads_[current_];
  t.state = state;
  t.site = site;
  publish(&failure_);  // should nobody resume it: what it did is done before the launch has failed
  switch_context(t.fiber->context(), scheduler_);
}

void Block::barrier(CallSite site) {
  if (done_ > 0) {
    int gone = 0;
    while (threads_[gone].state != State::done) ++gone;
    fail({Fault::left_before_barrier, gone, current_, 0, site});
  }
  if (at_barrier_ > 0 && !same_place(site, barrier_site_)) {
    int other = 0;
    while (threads_[other].state != State::at_barrier) ++other;
    fail({Fault::barrier_at_two_places, current_, other, 0, site, barrier_site_});
  }
  char* const tag = &barrier_turns_.tags[barrier_turns_.turn];
  publish(tag);
  barrier_site_ = site;
  if (++at_barrier_ < size_) {
    wait(State::at_barrier, site);
  } else {
    at_barrier_ = 0;
    barrier_turns_.turn ^= 1;
    for (int i = 0; i < size_; ++i) {
      const int thread = order_ == ThreadOrder::reverse ? size_ - 1 - i : i;
      if (thread != current_) wake(thread);
    }
  }
  observe(tag);
}

std::uint64_t Block::meet(Collective operation, unsigned mask, std::uint64_t value, int argument,
                          CallSite site) {
  const int warp = current_ / 32, lane = current_ % 32;
  if (!(mask >> lane & 1)) fail({Fault::not_in_own_mask, current_, current_, mask, site});
  if (mask & warps_[warp].exited)
    fail({Fault::lane_exited, current_, warp * 32 + __ffs(int(mask & warps_[warp].exited)) - 1,
          mask, site});
  auto& meetings = warps_[warp].meetings;
  std::size_t m = 0;
  while (m < std::size(meetings) && !(meetings[m].mask & mask)) ++m;
  if (m == std::size(meetings)) {
    m = 0;
    while (meetings[m].mask != 0) ++m;
    meetings[m].mask = mask;
    meetings[m].arrived = 0;
    meetings[m].operation = operation;
    meetings[m].site = site;
  }
  Meeting& meeting = meetings[m];
  if (meeting.mask != mask || meeting.operation != operation || !same_place(meeting.site, site))
    fail({Fault::different_collectives, current_, warp * 32 + __ffs(int(meeting.arrived)) - 1, mask,
          site, meeting.site});
  if (operation == Collective::shuffle && !(mask >> argument & 1))
    fail({Fault::shuffle_outside_mask, current_, warp * 32 + argument, mask, site});
  meeting.values[lane] = value;
  meeting.arguments[lane] = argument;
  meeting.arrived |= 1u << lane;
  // Only __syncwarp orders memory; shuffles and votes do not.
  char* const tag = &meeting.turns.tags[meeting.turns.turn];
  if (operation == Collective::syncwarp) publish(tag);
  if (meeting.arrived == mask)
    complete(warp, meeting);
  else
    wait(State::in_meeting, site);
  if (operation == Collective::syncwarp) observe(tag);
  return threads_[current_].result;
}

void Block::complete(int warp, Meeting& meeting) {
  std::uint64_t votes = 0, results[32];
  for (int lane = 0; lane < 32; ++lane)
    if (meeting.mask >> lane & 1) votes |= (meeting.values[lane] & 1) << lane;
  switch (meeting.operation) {
    case Collective::segment_sum:
      butterfly(meeting.values, meeting.arguments[current_ % 32],
                [](float a, float b) { return a + b; });
      break;
    case Collective::segment_max:
      butterfly(meeting.values, meeting.arguments[current_ % 32],
                [](float a, float b) { return a > b ? a : b; });
      break;
    case Collective::ballot:
    case Collective::any:
    case Collective::all:
    case Collective::syncwarp:
    case Collective::shuffle:
      break;
  }
  for (int lane = 0; lane < 32; ++lane) {
    if (!(meeting.mask >> lane & 1)) continue;
    switch (meeting.operation) {
      case Collective::shuffle:
        results[lane] = meeting.values[meeting.arguments[lane]];
        break;
      case Collective::ballot:
        results[lane] = votes;
        break;
      case Collective::any:
        results[lane] = votes != 0;
        break;
      case Collective::all:
        results[lane] = votes == meeting.mask;
        break;
      case Collective::syncwarp:
      case Collective::segment_sum:
      case Collective::segment_max:
        results[lane] = meeting.values[lane];
        break;
    }
  }
  const unsigned mask = meeting.mask;
  meeting.mask = 0;
  meeting.turns.turn ^= 1;
  for (int i = 0; i < 32; ++i) {
    const int lane = order_ == ThreadOrder::reverse ? 31 - i : i;
    if (!(mask >> lane & 1)) continue;
    const int thread = warp * 32 + lane;
    threads_[thread].result = results[lane];
    if (thread != current_) wake(thread);
  }
}

// Nobody can run and not everybody is done: a warp operation waits for lanes that wait elsewhere.
Block::Failure Block::deadlock() const {
  for (int i = 0; i < size_; ++i) {
    if (threads_[i].state != State::in_meeting) continue;
    for (const Meeting& meeting : warps_[i / 32].meetings) {
      if (!(meeting.mask >> (i % 32) & 1)) continue;
      const int missing = i / 32 * 32 + __ffs(int(meeting.mask & ~meeting.arrived)) - 1;
      return {Fault::deadlock, i, missing, meeting.mask, threads_[i].site, threads_[missing].site};
    }
  }
  return {Fault::deadlock, 0, 0, 0, barrier_site_, barrier_site_};
}

std::string Block::name_of(int thread) const {
  const unsigned i = unsigned(thread);
  return "thread " + text(i % shape_.x, i / shape_.x % shape_.y, i / (shape_.x * shape_.y));
}

std::string Block::describe(const Failure& f) const {
  const std::string where = std::string("kernel ") + kernel_ + ", block " +
                            text(index_.x, index_.y, index_.z) + ", " + name_of(f.thread) + ": ";
  char mask[16];
  std::snprintf(mask, sizeof mask, "0x%08x", f.mask);
  switch (f.fault) {
    case Fault::left_before_barrier:
      return where + "left the kernel before __syncthreads at " + text(f.site) +
             ", where others wait";
    case Fault::barrier_at_two_places:
      return where + "__syncthreads at " + text(f.site) + " while " + name_of(f.other) +
             " waits at " + text(f.other_site);
    case Fault::not_in_own_mask:
      return where + "mask " + mask + " does not name the calling lane, at " + text(f.site);
    case Fault::lane_exited:
      return where + "mask " + mask + " names " + name_of(f.other) +
             ", which has left the kernel or does not exist, at " + text(f.site);
    case Fault::left_meeting:
      return where + "left the kernel while named in the mask of a warp operation at " +
             text(f.site);
    case Fault::shuffle_outside_mask:
      return where + "reads " + name_of(f.other) + ", which mask " + mask + " does not name, at " +
             text(f.site);
    case Fault::different_collectives:
      return where + "warp operation at " + text(f.site) + " while " + name_of(f.other) +
             " of the same warp waits in another at " + text(f.other_site);
    case Fault::deadlock:
      return where + "waits at " + text(f.site) + " for " + name_of(f.other) + ", which mask " +
             mask + " names and which waits at " + text(f.other_site);
    case Fault::threw:
      return where + "threw: " + f.text;
    case Fault::none:
      break;
  }
  return where;
}

std::uint64_t meet(Collective operation, unsigned mask, std::uint64_t value, int argument,
                   CallSite site) {
  return running->meet(operation, mask, value, argument, site);
}
void block_barrier(CallSite site) { running->barrier(site); }
int lane_of_current_thread() { return running->current() % 32; }

}  // namespace cuda_emulator
