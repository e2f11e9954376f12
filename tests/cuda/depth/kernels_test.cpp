// Every kernel and every plan, run by the emulator, against the float64 reference.
#include <sys/mman.h>

#include <cstdlib>

#include "cuda/depth/mixer.h"
#include "cuda/device/reduce.cuh"
#include "cuda/gradcheck/depth_cases.h"
#include "tests/support.h"

using namespace attnres;
using attnres::test::contains;
using attnres::test::error_of;

namespace {

void check_all(const std::vector<DepthCase>& cases) {
  REQUIRE(!cases.empty());
  for (const DepthCase& c : cases)
    for (const TensorError& e : check_depth_case(c, emulated::kernel_result)) {
      INFO(e.subject, ", ", e.tensor, " at ", e.worst, ": max ", e.max_error, " of ", e.limit,
           ", rms ", e.rms_error, " of ", e.rms_limit);
      CHECK(e.passed);
    }
}

DepthCase small_case(Generation generation, RowType type = RowType::fp32) {
  DepthCase c;
  c.mixing.kind = DepthMixing::Kind::attention;
  c.mixing.heads = 2;
  c.generation = generation;
  c.type = type;
  c.group = generation == Generation::grouped ? 3 : 0;
  c.pre_norm = generation != Generation::naive;
  return c;
}

constexpr Generation kGenerations[] = {Generation::naive, Generation::fused, Generation::grouped};

bool same_bits(DepthResult a, DepthResult b) {
  const auto x = tensors_of(a), y = tensors_of(b);
  if (x.size() != y.size()) return false;
  for (std::size_t t = 0; t < x.size(); ++t)
    for (std::size_t i = 0; i < x[t].second->size(); ++i)
      if (!test::same_bits((*x[t].second)[i], (*y[t].second)[i])) return false;
  return true;
}

}  // namespace

TEST_CASE("kernels agree with the reference in float, at every head size and plan") {
  check_all(depth_cases({"", "fp32", 0, 0}));
}

TEST_CASE("kernels agree with the reference in bfloat16, at every head size and plan") {
  check_all(depth_cases({"", "bf16", 0, 0}));
}

TEST_CASE("a result of the kernels has every tensor that the reference has") {
  for (const DepthCase& c : depth_cases({"", "fp32", 0, 192})) {
    const DepthInputs inputs(c);
    DepthResult expected = reference_result(c, inputs), found = emulated::kernel_result(c, inputs);
    const auto wanted = tensors_of(expected), present = tensors_of(found);
    REQUIRE(present.size() == wanted.size());
    for (std::size_t t = 0; t < wanted.size(); ++t) CHECK(present[t].first == wanted[t].first);
  }
}

TEST_CASE("the order in which threads run changes no bit") {
  for (const RowType type : {RowType::fp32, RowType::bf16})
    for (const Generation generation : kGenerations) {
      const DepthCase c = small_case(generation, type);
      const DepthInputs inputs(c);
      const DepthResult forward = emulated::kernel_result(c, inputs);
      for (const char* order : {"reverse", "shuffle:1", "shuffle:2"}) {
        ::setenv("ATTNRES_THREAD_ORDER", order, 1);
        CHECK(same_bits(forward, emulated::kernel_result(c, inputs)));
        ::unsetenv("ATTNRES_THREAD_ORDER");
      }
    }
}

TEST_CASE("sums by shuffles, as a GPU makes them, have the bits of the emulator's fused sums") {
  for (const Generation generation : kGenerations) {
    const DepthCase c = small_case(generation);
    const DepthInputs inputs(c);
    const DepthResult fused = emulated::kernel_result(c, inputs);
    emulated::fuse_reductions(false);
    CHECK(same_bits(fused, emulated::kernel_result(c, inputs)));
    emulated::fuse_reductions(true);
  }
}

TEST_CASE("every tensor's check fails when the tensor is wrong by one percent") {
  for (const RowType type : {RowType::fp32, RowType::bf16}) {
    DepthCase attention = small_case(Generation::fused, type);
    attention.channels = 512;  // bfloat16 must see one percent of a sum over few tokens
    attention.tokens = 64;
    attention.mixing.heads = 8;
    attention.logits = 1;
    DepthCase delta = attention;
    delta.mixing.kind = DepthMixing::Kind::delta;
    delta.pre_norm = false;
    for (const DepthCase& c : {attention, delta}) {
      const DepthInputs inputs(c);
      const DepthResult reference = reference_result(c, inputs),
                        plain = plain_bf16_result(c, inputs);
      DepthResult found = emulated::kernel_result(c, inputs);
      const DepthResult* yardstick = type == RowType::bf16 ? &plain : nullptr;
      for (auto& [tensor, values] : tensors_of(found)) {
        const std::string name = tensor;  // doctest captures it
        const auto right = *values;
        for (auto& x : *values) x *= 1.01;
        for (const TensorError& e : compare(c, found, reference, yardstick)) {
          INFO(e.subject, ", ", name, " perturbed, judging ", e.tensor, ": max ", e.max_error,
               " of ", e.limit, ", rms ", e.rms_error, " of ", e.rms_limit);
          CHECK(e.passed == (e.tensor != name));
        }
        *values = right;
      }
    }
  }
}

TEST_CASE("one wrong entry, and one NaN, fail a check") {
  const DepthCase c = small_case(Generation::fused);
  const DepthInputs inputs(c);
  const DepthResult reference = reference_result(c, inputs);
  for (const double wrong : {0.1, std::nan("")}) {
    DepthResult found = emulated::kernel_result(c, inputs);
    for (auto& [name, values] : tensors_of(found)) {
      double& entry = values->back().size() > 0 ? values->back()(0, 1) : (*values)[2](0, 1);
      const double right = entry;
      entry += wrong;
      long failed = 0;
      for (const TensorError& e : compare(c, found, reference, nullptr))
        failed += !e.passed && e.tensor == name;
      CHECK(failed == 1);
      entry = right;
    }
  }
}

TEST_CASE("delta with gates at zero reads the residual stream, bit for bit") {
  for (const RowType type : {RowType::fp32, RowType::bf16}) {
    DepthCase delta = small_case(Generation::fused, type), residual;
    delta.pre_norm = false;
    delta.mixing.kind = DepthMixing::Kind::delta;
    residual = delta;
    residual.mixing = {};
    DepthInputs inputs(delta);
    inputs.gates.setZero();
    const DepthResult a = emulated::kernel_result(delta, inputs);
    const DepthResult b = emulated::kernel_result(residual, inputs);
    for (std::size_t l = 1; l < a.inputs.size(); ++l)
      CHECK(test::same_bits(a.inputs[l], b.inputs[l]));
    for (std::size_t l = 0; l < a.doutputs.size(); ++l)
      CHECK(test::same_bits(a.doutputs[l], b.doutputs[l]));
  }
}

TEST_CASE("blocks of one sublayer are the full form, bit for bit") {
  for (const Generation generation : kGenerations) {
    DepthCase full = small_case(generation), window = full;
    window.mixing.window = full.sublayers;  // a window that holds everything
    const DepthInputs inputs(full);
    CHECK(
        same_bits(emulated::kernel_result(full, inputs), emulated::kernel_result(window, inputs)));
  }
}

TEST_CASE("the bank's size is known before anything is allocated") {
  for (const Generation generation : kGenerations) {
    const DepthCase c = small_case(generation);
    const emulated::DepthShape shape{c.mixing,     c.sublayers,  c.tokens, c.channels,
                                     float(c.eps), c.generation, c.group};
    const DepthPlan plan = make_depth_plan(c.sublayers, c.mixing);
    const int group = generation == Generation::grouped ? 3 : 1;
    const emulated::DepthBank<float> bank(plan, shape, group);
    CHECK(bank.bytes() == emulated::DepthBank<float>::bytes(plan, shape, group));
    CHECK(bank.sources.size() == std::size_t(7 * 5 * 64));
  }
}

TEST_CASE("shapes that no kernel takes are refused with a sentence") {
  using emulated::DepthMixer;
  emulated::DepthShape shape{{DepthMixing::Kind::attention, 2, 1, 0}, 4, 3, 64};
  const auto refusal = [&] { return error_of([&] { DepthMixer<float> mixer(shape); }); };
  CHECK(refusal() == "");
  shape.channels = 60;
  CHECK(contains(refusal(), "60 channels: the kernels take a multiple of 8"));
  shape.channels = 64;
  shape.mixing.heads = 3;
  CHECK(contains(refusal(), "64 channels do not divide into 3 depth heads"));
  shape.mixing.heads = 2048;
  shape.channels = 4096;
  CHECK(contains(refusal(),
                 "2048 depth heads of 2 channels over 4 sublayers fit no block of threads"));
  shape.generation = Generation::naive;
  CHECK(refusal() == "");
  shape = {{DepthMixing::Kind::attention, 1, 1, 0}, 4, 3, 8192};
  shape.generation = Generation::grouped;
  shape.group = 4;
  CHECK(contains(refusal(), "groups of 4 rows of 8192 channels in 1 heads do not fit a block"));
  shape.group = 0;
  CHECK(refusal() == "");  // falls back to one site at a time
}

// ---- Indices beyond 2^31 ----

namespace {

// Address space that costs memory only where it is touched.
template <class T>
class Sparse {
 public:
  explicit Sparse(std::size_t size) : bytes_(size * sizeof(T)) {
    data_ = static_cast<T*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Sparse() { munmap(data_, bytes_); }
  T* data() { return data_; }

 private:
  T* data_;
  std::size_t bytes_;
};

}  // namespace

TEST_CASE("sources, gradients and pairs far beyond 2^31 elements are found") {
  using namespace attnres::emulated;
  constexpr std::int64_t N = 3, D = 64, H = 2, kFar = (std::int64_t(1) << 33) / (N * D);
  const RowLayout row = *site_layout(D, H);
  std::vector<float> results[2];
  for (const std::int64_t last : {std::int64_t(2), kFar}) {
    Sparse<float> bank(std::size_t((last + 1) * N * D)), rstd(std::size_t((last + 1) * N));
    Sparse<float> gradients(std::size_t((last + 1) * N * D)),
        delta(std::size_t((last + 1) * N * H));
    Sparse<float> weights(std::size_t((last + 2) * N * H)), errors(std::size_t((last + 2) * N * H));
    Sparse<float> folded(std::size_t((last + 1) * D));
    std::mt19937 engine(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](float* to, std::int64_t size) {
      for (std::int64_t i = 0; i < size; ++i) to[i] = normal(engine);
    };
    fill(bank.data(), N * D);
    fill(bank.data() + last * N * D, N * D);
    fill(gradients.data() + last * N * D, N * D);
    fill(delta.data() + last * N * H, N * H);
    fill(folded.data() + last * D, D);
    for (std::int64_t n = 0; n < N; ++n) rstd.data()[n] = 0.5f;
    std::vector<float> output(std::size_t(N * D)), dsource(output.size());
    const int sources[] = {0, int(last)};
    fused_forward<float>(row,
                         {bank.data(),
                          rstd.data(),
                          N,
                          1e-6f,
                          sources,
                          2,
                          0,
                          int(last),
                          folded.data() + last * D,
                          {},
                          weights.data() + last * N * H,
                          output.data(),
                          {}},
                         nullptr);
    const Consumer consumer{int(last), last + 1};
    fused_gather<float>(row,
                        {N,
                         bank.data() + last * N * D,
                         rstd.data() + last * N,
                         gradients.data(),
                         delta.data(),
                         folded.data(),
                         weights.data(),
                         errors.data(),
                         &consumer,
                         1,
                         {},
                         nullptr,
                         dsource.data(),
                         nullptr},
                        nullptr);
    auto& result = results[last == kFar];
    result = output;
    result.insert(result.end(), dsource.begin(), dsource.end());
    for (std::int64_t i = 0; i < N * H; ++i) {
      result.push_back(weights.data()[(last + 1) * N * H + i]);
      result.push_back(errors.data()[(last + 1) * N * H + i]);
    }
  }
  CHECK(results[0] == results[1]);
  for (const float x : results[0]) CHECK(std::isfinite(x));
}
