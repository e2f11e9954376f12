// How fast one core encodes: the bundled corpus, and runs of one letter of two lengths, whose rates
// show how the time grows.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>

#include "data/tokenizer/tokenizer.h"

namespace {

using namespace attnres;

std::string corpus() {
  std::ifstream file(ATTNRES_CORPUS, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// With a new encoder each time: what it remembers of a text is part of the work.
void encode(benchmark::State& state, const std::string& text) {
  static const Tokenizer tokenizer = Tokenizer::gpt2();
  std::vector<std::int32_t> ids;
  for (auto _ : state) {
    ids.clear();
    Encoder(tokenizer).encode(text, SpecialTokens::as_text, ids);
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(std::int64_t(state.iterations()) * std::int64_t(text.size()));
  state.counters["tokens"] = double(ids.size());
}

BENCHMARK_CAPTURE(encode, corpus, corpus())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_letter_100_kB, std::string(100'000, 'a'))
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(encode, one_letter_1_MB, std::string(1'000'000, 'a'))
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
