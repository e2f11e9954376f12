#include "cuda/emulator/launch.h"

#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <thread>

#include "cuda/emulator/block.h"

#ifdef ATTNRES_EMULATOR_TSAN
#include <sanitizer/tsan_interface.h>
#endif

namespace cuda_emulator {
namespace {

constexpr std::size_t kSharedLimit = 227 << 10;  // bytes per block, compute capability 9.0

thread_local Traffic traffic_of_this_thread;

std::vector<LaunchRecorder*> recorders;

// Blocks and their fibers' stacks outlive launches: making them costs more than a small kernel.
std::mutex pool_mutex;
std::vector<std::unique_ptr<Block>> pool;

std::unique_ptr<Block> borrow_block() {
  const std::lock_guard lock(pool_mutex);
  if (pool.empty()) return std::make_unique<Block>();
  auto block = std::move(pool.back());
  pool.pop_back();
  return block;
}

void give_back(std::unique_ptr<Block> block) {
  const std::lock_guard lock(pool_mutex);
  pool.push_back(std::move(block));
}

std::string text(dim3 d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

void check_configuration(const char* kernel, const GridShape& s) {
  const auto refuse = [&](const std::string& what) {
    throw KernelError(std::string("kernel ") + kernel + ": " + what);
  };
  const std::uint64_t threads = std::uint64_t(s.block.x) * s.block.y * s.block.z;
  if (threads == 0 || threads > 1024 || s.block.z > 64)
    refuse("a block of " + text(s.block) + " threads; a GPU takes 1 to 1024, and 64 in z");
  if (s.grid.x == 0 || s.grid.y == 0 || s.grid.z == 0 || s.grid.x > 0x7fffffffu ||
      s.grid.y > 65535 || s.grid.z > 65535)
    refuse("a grid of " + text(s.grid) + " blocks; a GPU takes up to 2^31 - 1, 65535, 65535");
  if (s.shared_bytes > kSharedLimit)
    refuse(std::to_string(s.shared_bytes) + " bytes of dynamic shared memory; a block has " +
           std::to_string(kSharedLimit));
}

struct Order {
  ThreadOrder order = ThreadOrder::forward;
  unsigned seed = 0;
};

Order thread_order() {
  const char* variable = std::getenv("ATTNRES_THREAD_ORDER");
  const std::string value = variable == nullptr ? "forward" : variable;
  if (value == "forward") return {};
  if (value == "reverse") return {ThreadOrder::reverse, 0};
  if (value.rfind("shuffle:", 0) == 0)
    return {ThreadOrder::shuffle, unsigned(std::strtoul(value.c_str() + 8, nullptr, 10))};
  throw KernelError("ATTNRES_THREAD_ORDER is \"" + value +
                    "\"; it can be forward, reverse or shuffle:SEED");
}

unsigned worker_count([[maybe_unused]] std::uint64_t blocks) {
#ifdef ATTNRES_EMULATOR_ASAN
  return 1;  // static __shared__ variables are the process's, see cuda_runtime.h
#else
  return unsigned(
      std::min<std::uint64_t>(std::max(1u, std::thread::hardware_concurrency()), blocks));
#endif
}

// The blocks of one launch: workers take them by number, the first failure by number is kept.
struct Launch {
  const char* kernel;
  const GridShape& shape;
  const std::function<void()>& body;
  Order order;
  std::uint64_t blocks;
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex{};
  std::uint64_t failed_block = std::numeric_limits<std::uint64_t>::max();
  std::string failure{};
  Traffic traffic{};

  void work() {
    auto block = borrow_block();
    traffic_of_this_thread = {};
    for (std::uint64_t b; (b = next++) < blocks;) {
      const uint3 index{unsigned(b % shape.grid.x), unsigned(b / shape.grid.x % shape.grid.y),
                        unsigned(b / (std::uint64_t(shape.grid.x) * shape.grid.y))};
      try {
        block->run(kernel, shape.grid, shape.block, index, shape.shared_bytes, body, order.order,
                   order.seed + unsigned(b));
      } catch (const std::exception& error) {
        const std::lock_guard lock(mutex);
        if (b < failed_block) {
          failed_block = b;
          failure = error.what();
        }
        next = blocks;
      }
    }
    give_back(std::move(block));
    const std::lock_guard lock(mutex);
    traffic += traffic_of_this_thread;
  }
};

}  // namespace

void run_grid(const char* kernel, const GridShape& shape, const std::function<void()>& body) {
  if (current_block() != nullptr) throw KernelError("a kernel cannot launch kernels");
  check_configuration(kernel, shape);
  Launch launch{kernel, shape, body, thread_order(),
                std::uint64_t(shape.grid.x) * shape.grid.y * shape.grid.z};
  const unsigned workers = worker_count(launch.blocks);
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < workers; ++i) threads.emplace_back([&] { launch.work(); });
  launch.work();
  for (auto& thread : threads) thread.join();
  if (!launch.failure.empty()) throw KernelError(launch.failure);
  for (auto* recorder : recorders) recorder->launches_.push_back({kernel, shape, launch.traffic});
}

void* dynamic_shared_memory() { return current_block()->shared(); }

Traffic& Traffic::operator+=(const Traffic& other) {
  read += other.read;
  written += other.written;
  parameters += other.parameters;
  return *this;
}

void count_read(std::size_t bytes) { traffic_of_this_thread.read += bytes; }
void count_written(std::size_t bytes) { traffic_of_this_thread.written += bytes; }
void count_parameters(std::size_t bytes) { traffic_of_this_thread.parameters += bytes; }

MisalignedAccess::MisalignedAccess(const void* address, int bytes)
    : std::runtime_error(
          "a load or store of " + std::to_string(bytes) + " bytes at an address that is " +
          std::to_string(reinterpret_cast<std::uintptr_t>(address) % std::uintptr_t(bytes)) +
          " bytes past a multiple of " + std::to_string(bytes)) {}

LaunchRecorder::LaunchRecorder() { recorders.push_back(this); }
LaunchRecorder::~LaunchRecorder() { std::erase(recorders, this); }

Traffic LaunchRecorder::total(const std::string& part) const {
  Traffic sum;
  for (const auto& launch : launches_)
    if (launch.kernel.find(part) != std::string::npos) sum += launch.traffic;
  return sum;
}

}  // namespace cuda_emulator
