// How fast the reference is: every operation and the whole optimizer step at the quickstart shape,
// in GFLOP/s or GB/s and as a share of what this machine does at best, measured first.
//   build/benchmark_reference --benchmark_filter=step
#include <benchmark/benchmark.h>

#include <cstdio>

#include "reference/cross_entropy.h"
#include "reference/depth/attention_mixer.h"
#include "reference/depth/delta_gate.h"
#include "reference/embedding.h"
#include "reference/linear.h"
#include "reference/parallel.h"
#include "reference/rms_norm.h"
#include "reference/swiglu.h"
#include "train/machine.h"
#include "train/model.h"
#include "train/presets.h"

namespace {

using namespace attnres;
using F = Matrix<float>;
using State = benchmark::State;

double peak_gflops = 1, peak_gbytes = 1;

constexpr Index N = 2048, T = 256, D = 128, MLP = 384, V = 320, HEADS = 4, KV = 2, HEAD_DIM = 32;

F random(Index rows, Index columns) { return F::Random(rows, columns); }

std::vector<std::int32_t> random_tokens(Index count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::uint32_t x = 1;
  for (auto& token : tokens) token = std::int32_t((x = x * 1664525u + 1013904223u) >> 24);
  return tokens;
}

// Operations that multiply matrices are measured in GFLOP/s, the others in bytes they must move.
void report_flops(State& state, double flops) {
  const double done = flops * double(state.iterations()) / 1e9;
  state.counters["GFLOP/s"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
  state.counters["share"] = benchmark::Counter(done / peak_gflops, benchmark::Counter::kIsRate);
}
void report_bytes(State& state, double values) {
  const double done = values * sizeof(float) * double(state.iterations()) / 1e9;
  state.counters["GB/s"] = benchmark::Counter(done, benchmark::Counter::kIsRate);
  state.counters["share"] = benchmark::Counter(done / peak_gbytes, benchmark::Counter::kIsRate);
}

void linear_forward(State& state) {
  const F x = random(N, D), W = random(MLP, D);
  F y(N, MLP);
  for (auto _ : state) attnres::linear_forward<float>(x, W, y);
  report_flops(state, 2.0 * N * D * MLP);
}

void linear_backward(State& state) {
  const F x = random(N, D), W = random(MLP, D), dy = random(N, MLP);
  F dx(N, D), dW = F::Zero(MLP, D);
  for (auto _ : state) {
    linear_backward_input<float>(dy, W, dx);
    linear_backward_weight<float>(dy, x, dW);
  }
  report_flops(state, 4.0 * N * D * MLP);
}

struct AttentionArrays {
  AttentionShape shape{N / T, T, HEADS, KV, HEAD_DIM};
  F q = random(N, HEADS*HEAD_DIM), k = random(N, KV*HEAD_DIM), v = random(N, KV*HEAD_DIM);
  F context{N, HEADS*HEAD_DIM}, lse{HEADS, N}, dcontext = random(N, HEADS*HEAD_DIM);
  F dq{N, HEADS*HEAD_DIM}, dk{N, KV*HEAD_DIM}, dv{N, KV*HEAD_DIM};
  // Causal: half of two (forward) products of T x T x d per head and sequence.
  double forward_flops() const { return 2.0 * N * T * HEADS * HEAD_DIM; }
};

void sequence_attention_forward(State& state) {
  AttentionArrays a;
  for (auto _ : state)
    attnres::sequence_attention_forward<float>(a.shape, a.q, a.k, a.v, a.context, a.lse);
  report_flops(state, a.forward_flops());
}

void sequence_attention_backward(State& state) {
  AttentionArrays a;
  attnres::sequence_attention_forward<float>(a.shape, a.q, a.k, a.v, a.context, a.lse);
  for (auto _ : state)
    attnres::sequence_attention_backward<float>(a.shape, a.dcontext, a.q, a.k, a.v, a.context,
                                                a.lse, a.dq, a.dk, a.dv);
  report_flops(state, 2 * a.forward_flops());
}

void cross_entropy(State& state) {
  const F hidden = random(N, D), head = random(V, D);
  const auto targets = random_tokens(N);
  F logits(cross_entropy_chunk(N, V), V), dhidden(N, D), dhead = F::Zero(V, D);
  Vector<float> loss(N);
  for (auto _ : state)
    cross_entropy_forward_backward<float>(hidden, head, targets, 1.0f / N, logits, loss, dhidden,
                                          dhead);
  report_flops(state, 6.0 * N * D * V);
}

void rms_norm_forward(State& state) {
  const F x = random(N, D);
  const Vector<float> gain = Vector<float>::Ones(D);
  Vector<float> rstd(N);
  F y(N, D);
  for (auto _ : state) attnres::rms_norm_forward<float>(x, gain, 1e-6f, y, rstd);
  report_bytes(state, 2.0 * N * D);
}

void rms_norm_backward(State& state) {
  const F x = random(N, D), dy = random(N, D);
  const Vector<float> gain = Vector<float>::Ones(D), rstd = Vector<float>::Ones(N);
  Vector<float> dgain = Vector<float>::Zero(D);
  F dx(N, D);
  for (auto _ : state) attnres::rms_norm_backward<float>(dy, x, gain, rstd, dx, dgain);
  report_bytes(state, 3.0 * N * D);
}

void rotary(State& state) {
  const auto table = make_rotary_table<float>(T, HEAD_DIM, 10000.0);
  F x = random(N, HEADS * HEAD_DIM);
  for (auto _ : state) rotary_forward<float>(x, T, table);
  report_bytes(state, 2.0 * N * HEADS * HEAD_DIM);
}

void swiglu_forward(State& state) {
  const F gate = random(N, MLP), up = random(N, MLP);
  F hidden(N, MLP);
  for (auto _ : state) attnres::swiglu_forward<float>(gate, up, hidden);
  report_bytes(state, 3.0 * N * MLP);
}

void swiglu_backward(State& state) {
  const F gate = random(N, MLP), up = random(N, MLP), dhidden = random(N, MLP);
  F dgate(N, MLP), dup(N, MLP);
  for (auto _ : state) attnres::swiglu_backward<float>(dhidden, gate, up, dgate, dup);
  report_bytes(state, 5.0 * N * MLP);
}

void embedding(State& state) {
  const auto tokens = random_tokens(N);
  const F table = random(V, D);
  F x(N, D), dtable = F::Zero(V, D);
  for (auto _ : state) {
    embedding_forward<float>(tokens, table, x);
    embedding_backward<float>(tokens, x, dtable);
  }
  report_bytes(state, 5.0 * N * D);
}

// Depth attention of all 13 sites of the quickstart model; one read of a source per pair each way.
struct Depth {
  explicit Depth(Index heads, Index group_sites = 1) : config(preset("quickstart").model) {
    config.vocab_size = V;
    config.depth_mixing = {DepthMixing::Kind::attention, heads, 1, 0, group_sites};
    parameters = std::make_unique<Parameters<float>>(config);
    gradients = std::make_unique<Parameters<float>>(config);
    initialise(*parameters, 1);
    randomise_queries(*parameters, 2);
    mixer = std::make_unique<AttentionMixer<float>>(config, N);
    inputs.assign(std::size_t(config.sublayers()) + 2, F(N, D));
  }
  void forward() {
    mixer->begin(parameters->sites());
    mixer->write(0, output);
    for (Index l = 1; l <= config.sublayers() + 1; ++l) {
      mixer->read(l, inputs[l]);
      if (l <= config.sublayers()) mixer->write(l, output);
    }
  }
  void backward() {
    mixer->begin_backward();
    for (Index l = config.sublayers() + 1; l >= 1; --l) {
      mixer->read_backward(l, inputs[l], output);
      mixer->write_backward(l - 1, doutput);
    }
    mixer->end_backward(parameters->sites(), gradients->sites());
  }
  double pair_values() const { return double(mixer->plan()->pairs()) * N * D; }

  ModelConfig config;
  std::unique_ptr<Parameters<float>> parameters, gradients;
  std::unique_ptr<AttentionMixer<float>> mixer;
  std::vector<F> inputs;
  F output = random(N, D), doutput = F(N, D);
};

void depth_attention_forward(State& state) {
  Depth depth(state.range(0));
  for (auto _ : state) depth.forward();
  report_bytes(state, depth.pair_values());
}

void depth_attention_backward(State& state) {
  Depth depth(state.range(0));
  depth.forward();
  for (auto _ : state) depth.backward();
  report_bytes(state, depth.pair_values());
}

// The same sites in two phases, in groups of four: earlier sources are read once per group.
void depth_attention_grouped_forward(State& state) {
  Depth depth(2, 4);
  for (auto _ : state) depth.forward();
  report_bytes(state, depth.pair_values());
}

void delta_gate(State& state) {
  const F x = random(N, D), o = random(N, D), dinput = random(N, D);
  F input(N, D), doutput(N, D);
  Vector<float> row_sums(N);
  for (auto _ : state) {
    delta_gate_forward<float>(x, o, 0.5f, input);
    benchmark::DoNotOptimize(delta_gate_backward<float>(dinput, o, 0.5f, doutput, row_sums));
  }
  report_bytes(state, 6.0 * N * D);
}

void adamw(State& state) {
  ModelConfig config = preset("quickstart").model;
  config.vocab_size = V;
  Parameters<float> parameters(config);
  initialise(parameters, 1);
  AdamWState moments(parameters.layout().size);
  const Vector<float> gradients = Vector<float>::Constant(parameters.layout().size, 1e-3f);
  Index t = 0;
  for (auto _ : state) adamw_step({}, 1e-4, ++t, 1.0, gradients, parameters, moments);
  report_bytes(state, 7.0 * double(parameters.layout().size));
}

// A whole optimizer step: loss, gradients, norm, AdamW.
void step(State& state, const char* mixing) {
  ModelConfig config = preset("quickstart").model;
  config.vocab_size = V;
  apply_mixing({.name = mixing}, config);
  const Index sequences = state.range(0), tokens = sequences * T;
  ReferenceModel model(config, sequences, T);
  initialise(model.parameters(), 1);
  const auto ids = random_tokens(tokens), targets = random_tokens(tokens);
  Index t = 0;
  for (auto _ : state) {
    model.accumulate({sequences, T, ids, targets}, 1.0f / float(tokens));
    model.update({}, 1e-4, ++t, model.gradient_norm());
  }
  state.SetItemsProcessed(state.iterations() * tokens);
  report_flops(state, training_flops_per_token(config, T) * double(tokens));
}

BENCHMARK(linear_forward)->UseRealTime();
BENCHMARK(linear_backward)->UseRealTime();
BENCHMARK(sequence_attention_forward)->UseRealTime();
BENCHMARK(sequence_attention_backward)->UseRealTime();
BENCHMARK(cross_entropy)->UseRealTime();
BENCHMARK(rms_norm_forward)->UseRealTime();
BENCHMARK(rms_norm_backward)->UseRealTime();
BENCHMARK(rotary)->UseRealTime();
BENCHMARK(swiglu_forward)->UseRealTime();
BENCHMARK(swiglu_backward)->UseRealTime();
BENCHMARK(embedding)->UseRealTime();
BENCHMARK(depth_attention_forward)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK(depth_attention_backward)->Arg(1)->Arg(2)->Arg(4)->UseRealTime();
BENCHMARK(depth_attention_grouped_forward)->UseRealTime();
BENCHMARK(delta_gate)->UseRealTime();
BENCHMARK(adamw)->UseRealTime();
BENCHMARK_CAPTURE(step, residual, "residual")->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, attnres, "attnres")->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, block_attnres, "block-attnres")
    ->Arg(4)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(step, mhar, "mhar")->Arg(4)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace

int main(int argc, char** argv) {
  set_threads(0);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  peak_gflops = measure_matmul_gflops();
  peak_gbytes = measure_copy_gbytes();
  std::fprintf(stderr, "%d threads, products through %s; measured peaks: %.1f GFLOP/s, %.1f GB/s\n",
               thread_count(), matrix_product_library(), peak_gflops, peak_gbytes);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
