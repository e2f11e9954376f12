// Routing alone at the shapes of the published models, three generations of kernels.
// On a GPU: time by CUDA events, bytes per second, share of the copy bandwidth measured in the same
// run, ratio to the naive kernels.  On the emulator: the bytes that the same kernels count, over
// fewer tokens; its times mean nothing.
//   build/benchmark_depth --benchmark_repetitions=5 --benchmark_report_aggregates_only=true
//   build/benchmark_depth_emulated
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include "cuda/benchmark/routing_step.h"
#include "cuda/depth/byte_model.h"
#include "cuda/gradcheck/depth_cases.h"

namespace attnres::ATTNRES_BACKEND {
namespace {

using T = __nv_bfloat16;

struct Model {
  const char* name;
  int sublayers, channels, heads;
  std::int64_t tokens;
};

// The MHAR paper's models, and the AttnRes paper's block form: 9 sources, one head.
const Model kModels[] = {{"100M", 24, 512, 4, 16384},
                         {"350M", 48, 1024, 8, 8192},
                         {"1B", 72, 1280, 8, 4096},
                         {"attnres", 8, 7168, 1, 8192}};
const char* const kGenerations[] = {"naive", "fused", "grouped"};

DepthShape shape_of(const Model& model, Generation generation) {
  DepthShape shape;
  shape.mixing = {DepthMixing::Kind::attention, model.heads, 1, 0};
  shape.sublayers = model.sublayers;
  shape.channels = model.channels;
  shape.tokens = model.tokens;
  shape.generation = generation;
#ifdef ATTNRES_EMULATED
  shape.tokens = generation == Generation::naive ? 1 : 8;
#endif
  return shape;
}

// A number is worth nothing from a kernel that is wrong: this shape, few tokens and sublayers.
std::string wrong(const Model& model, Generation generation) {
  DepthCase c;
  c.mixing = {DepthMixing::Kind::attention, model.heads, 1, 0};
  c.channels = model.channels;
  c.generation = generation;
  c.type = RowType::bf16;
  c.sublayers = 4;
  c.tokens = 4;
  for (const TensorError& e : check_depth_case(c, kernel_result))
    if (!e.passed) return e.tensor + " is wrong at " + e.worst;
  return {};
}

#ifdef ATTNRES_EMULATED

void run(benchmark::State& state, const Model& model, Generation generation, bool backward) {
  RoutingStep<T> step(shape_of(model, generation));
  if (backward) step.forward();
  const double elements = double(step.mixer().plan().pairs()) * model.channels *
                          double(shape_of(model, generation).tokens);
  cuda_emulator::Traffic traffic;
  for (auto _ : state) {
    const cuda_emulator::LaunchRecorder recorder;
    if (backward)
      step.backward();
    else
      step.forward();
    traffic = recorder.total();
  }
  state.counters["read"] = double(traffic.read) / elements;
  state.counters["written"] = double(traffic.written) / elements;
  state.counters["bytes"] = double(traffic.tokens()) / elements;
  state.counters["from_cache"] = double(traffic.parameters) / elements;
  state.counters["group"] = step.mixer().group();
}

#else

double copy_gbytes = 1;
std::map<std::string, double> naive_seconds;

double seconds(cudaEvent_t from, cudaEvent_t to) {
  float milliseconds = 0;
  check_device(cudaEventSynchronize(to), "cudaEventSynchronize");
  check_device(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
  return double(milliseconds) / 1e3;
}

// One forward or backward pass; the time lies between two events on the stream.
template <class Pass>
double timed(const Pass& pass) {
  cudaEvent_t from, to;
  check_device(cudaEventCreate(&from), "cudaEventCreate");
  check_device(cudaEventCreate(&to), "cudaEventCreate");
  check_device(cudaEventRecord(from), "cudaEventRecord");
  pass();
  check_device(cudaEventRecord(to), "cudaEventRecord");
  const double elapsed = seconds(from, to);
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  return elapsed;
}

void run(benchmark::State& state, const Model& model, Generation generation, bool backward) {
  RoutingStep<T> step(shape_of(model, generation));
  const auto pass = [&] { backward ? step.backward() : step.forward(); };
  step.forward();
  for (int warm_up = generation == Generation::naive ? 2 : 0; warm_up < 3; ++warm_up) pass();
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(timed(pass));
    state.SetIterationTime(times.back());
  }
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(times.size() / 2), times.end());
  const double median = times[times.size() / 2];
  // The model counts both passes; a naive pass is compared by time alone.
  const auto [forward_bytes, backward_bytes] = routing_bytes_by_pass(
      step.mixer().plan(), model.channels, model.heads, sizeof(T), step.mixer().group());
  const double bytes = (backward ? backward_bytes : forward_bytes) * double(model.tokens);
  const std::string row = std::string(model.name) + (backward ? "/backward" : "/forward");
  if (generation == Generation::naive) {
    naive_seconds[row] = median;
  } else {
    state.counters["GB"] = bytes / 1e9;
    state.counters["GB/s"] = bytes / median / 1e9;
    state.counters["of_copy"] = bytes / median / 1e9 / copy_gbytes;
  }
  if (naive_seconds.contains(row)) state.counters["x_naive"] = naive_seconds[row] / median;
  state.counters["group"] = step.mixer().group();
}

// Device-to-device copy, bytes read plus bytes written: what the memory can do at best.
void measure_copy() {
  const std::size_t bytes = std::size_t(1) << 30;
  DeviceArray<char> from(bytes), to(bytes);
  std::vector<double> rates;
  for (int i = 0; i < 12; ++i)
    rates.push_back(2e-9 * double(bytes) / timed([&] {
                      check_device(
                          cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice),
                          "cudaMemcpyAsync");
                    }));
  std::sort(rates.begin(), rates.end());
  copy_gbytes = rates[rates.size() / 2];
  std::printf("device-to-device copy: %.0f GB/s (median of %zu, read + written)\n", copy_gbytes,
              rates.size());
}

#endif

void benchmark_routing(benchmark::State& state, const Model& model, Generation generation,
                       bool backward) {
  try {
    if (const std::string what = wrong(model, generation); !what.empty())
      return state.SkipWithError(what.c_str());
    run(state, model, generation, backward);
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
  }
}

void register_all() {
  for (const Model& model : kModels)
    for (const Generation generation : {Generation::naive, Generation::fused, Generation::grouped})
      for (const bool backward : {false, true}) {
        const std::string name = std::string(model.name) + "/" + kGenerations[int(generation)] +
                                 (backward ? "/backward" : "/forward");
        auto* b = benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
          benchmark_routing(state, model, generation, backward);
        });
#ifdef ATTNRES_EMULATED
        b->Iterations(1)->Unit(benchmark::kMillisecond);
#else
        b->UseManualTime()->Unit(benchmark::kMicrosecond);
        b->Iterations(generation == Generation::naive ? 2 : 20);  // naive: seconds per pass
#endif
      }
}

}  // namespace
}  // namespace attnres::ATTNRES_BACKEND

int main(int argc, char** argv) {
  using namespace attnres::ATTNRES_BACKEND;
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
#ifndef ATTNRES_EMULATED
    measure_copy();
#endif
    register_all();
    benchmark::RunSpecifiedBenchmarks();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "benchmark_depth: %s\n", error.what());
    return 1;
  }
}
