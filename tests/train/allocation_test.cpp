// No allocation inside the step loop after the first step.  The linker wraps malloc (--wrap), and
// operator new is replaced, so everything that the program's own code allocates is counted.
#include <atomic>
#include <cstdlib>
#include <new>

#include "data/windows.h"
#include "tests/train/train_support.h"

namespace {
std::atomic<long> allocations = 0;
}

extern "C" void* __real_malloc(std::size_t size);
extern "C" void* __wrap_malloc(std::size_t size) {
  ++allocations;
  return __real_malloc(size);
}

void* operator new(std::size_t size) {
  ++allocations;
  if (void* memory = __real_malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using namespace attnres;
using namespace attnres::test;

TEST_CASE("the counter counts") {
  const long before = allocations;
  const std::vector<int> heap(100);
  const Matrix<float> matrix(10, 10);
  CHECK(allocations >= before + 2);
  CHECK(heap.size() + std::size_t(matrix.size()) == 200);
}

TEST_CASE("a step allocates nothing after the first, for any mixing") {
  using Kind = DepthMixing::Kind;
  for (const DepthMixing& mixing :
       {DepthMixing{}, DepthMixing{Kind::attention, 2}, DepthMixing{Kind::attention, 1, 4},
        DepthMixing{Kind::attention, 2, 1, 0, 3}, DepthMixing{Kind::delta, 2}}) {
    ReferenceModel model(tiny_model(mixing), 4, 100);
    initialise(model.parameters(), 1);
    WindowLoader loader(Windows(small_data().train, 100), 1);
    std::vector<std::int32_t> tokens(400), targets(400);
    const auto step = [&](Index t) {
      const std::size_t counted = loader.next(4, tokens, targets);
      model.accumulate({4, 100, tokens, targets}, 1.0f / float(counted));
      model.update({}, 1e-3, t, model.gradient_norm());
    };
    step(1);
    const long before = allocations;
    for (Index t = 2; t <= 12; ++t) step(t);
    CHECK(allocations == before);
  }
}
