// attnres gradcheck: every hand-written gradient against finite differences, or every CUDA kernel
// against the float64 reference.
#include <cstdio>

#include "cuda/gradcheck/depth_cases.h"
#include "reference/gradcheck.h"
#include "train/commands/command.h"

namespace attnres {
namespace {

const char* kExamples =
    "  attnres gradcheck\n"
    "  attnres gradcheck --only depth_attention\n"
    "  attnres gradcheck --device emulated --plan block --dtype bf16\n"
    "  attnres gradcheck --device cuda --heads 8 --failures";

// Counts verdicts and prints what was asked for.
class Table {
 public:
  explicit Table(bool failures_only) : failures_only_(failures_only) {}

  template <class Print>
  void add(bool passed, const Print& print) {
    ++(passed ? passed_ : failed_);
    if (!passed || !failures_only_) print();
  }
  bool empty() const { return passed_ + failed_ == 0; }
  int finish() const {
    std::printf("%ld tensors passed, %ld failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  bool failures_only_;
  long passed_ = 0, failed_ = 0;
};

int check_reference(const std::string& only, Table table) {
  const auto report = [&](const std::vector<GradcheckResult>& results) {
    for (const auto& r : results) {
      if (r.subject.find(only) == std::string::npos) continue;
      if (table.empty())
        std::printf("%-40s %-52s %7s   %s  %13s  %13s\n", "operation or variant", "tensor",
                    "checked", "error  ", "analytic", "numeric");
      table.add(r.passed, [&] {
        std::printf("%-40s %-52s %7ld   %.1e  %13.6e  %13.6e  %s\n", r.subject.c_str(),
                    r.tensor.c_str(), long(r.checked), r.max_error, r.analytic, r.numeric,
                    r.passed ? "ok" : "FAILED");
      });
    }
  };
  report(gradcheck_operations());
  report(gradcheck_variants());
  if (table.empty()) throw UsageError("no operation or variant contains \"" + only + "\"");
  return table.finish();
}

KernelUnderTest kernels_on(const std::string& device) {
  if (device == "emulated") return emulated::kernel_result;
#ifdef ATTNRES_HAVE_CUDA
  if (device == "cuda") {
    gpu::require_device();
    return gpu::kernel_result;
  }
#else
  if (device == "cuda")
    throw std::runtime_error(
        "this build has no CUDA kernels: nvcc was not found when it was configured; --device "
        "emulated runs the same kernels");
#endif
  throw UsageError("--device is \"" + device + "\"; it can be reference, emulated or cuda");
}

int check_kernels(const KernelUnderTest& kernels, const CaseFilter& filter, const std::string& only,
                  Table table) {
  for (const DepthCase& c : depth_cases(filter)) {
    if (c.name().find(only) == std::string::npos) continue;
    if (table.empty())
      std::printf("%-62s %-18s %8s %8s  %8s %8s  %11s  %s\n", "kernels", "tensor", "max", "limit",
                  "rms", "limit", "cosine", "worst at");
    for (const TensorError& e : check_depth_case(c, kernels))
      table.add(e.passed, [&] {
        std::printf("%-62s %-18s %.2e %.2e  %.2e %.2e  %.9f  %-24s %s\n", e.subject.c_str(),
                    e.tensor.c_str(), e.max_error, e.limit, e.rms_error, e.rms_limit, e.cosine,
                    e.worst.c_str(), e.passed ? "ok" : "FAILED");
      });
    std::fflush(stdout);
  }
  if (table.empty()) throw UsageError("no case has this plan, type, number of heads and channels");
  return table.finish();
}

}  // namespace

int gradcheck_command(int argc, char** argv) {
  cxxopts::Options options(
      "attnres gradcheck",
      "Compare every backward pass with central finite differences in float64 (step 1e-6,\n"
      "atol 1e-5, rtol 1e-3), or CUDA kernels, on a GPU or on the emulator, with the float64\n"
      "reference. Exit status 1 if one fails.\n");
  option<std::string>(options, "", "device", "NAME",
                      "reference (finite differences), emulated or cuda", "reference");
  option<std::string>(options, "", "only", "TEXT", "Rows whose subject contains TEXT", "");
  flag(options, "", "failures", "Print failures alone");
  option<std::string>(options, "Kernels", "plan", "NAME",
                      "full, block, window, delta, delta-block or residual (default: all)");
  option<std::string>(options, "Kernels", "dtype", "NAME", "fp32 or bf16 (default: both)");
  option<int>(options, "Kernels", "heads", "H", "Cases with H depth heads (default: all)");
  option<int>(options, "Kernels", "channels", "D", "Cases with D channels (default: all)");
  threads_option(options);
  const auto a = parse(options, argc, argv, kExamples, {"", "Kernels"});
  if (!a) return 0;
  const std::string device = (*a)["device"].as<std::string>();
  const std::string only = (*a)["only"].as<std::string>();
  CaseFilter filter;
  if (a->count("plan")) filter.plan = (*a)["plan"].as<std::string>();
  if (a->count("dtype")) filter.type = (*a)["dtype"].as<std::string>();
  if (a->count("heads")) filter.heads = (*a)["heads"].as<int>();
  if (a->count("channels")) filter.channels = (*a)["channels"].as<int>();
  if (!filter.type.empty() && filter.type != "fp32" && filter.type != "bf16")
    throw UsageError("--dtype is \"" + filter.type + "\"; it can be fp32 or bf16");
  const Table table(a->count("failures") > 0);
  if (device == "reference") return check_reference(only, table);
  return check_kernels(kernels_on(device), filter, only, table);
}

}  // namespace attnres
