// attnres gradcheck: every hand-written gradient against finite differences.
#include <cstdio>

#include "reference/gradcheck.h"
#include "train/commands/command.h"

namespace attnres {
namespace {

void print_header() {
  std::printf("%-40s %-52s %7s   %s  %13s  %13s\n", "operation or variant", "tensor", "checked",
              "error  ", "analytic", "numeric");
}

void print_row(const GradcheckResult& r) {
  std::printf("%-40s %-52s %7ld   %.1e  %13.6e  %13.6e  %s\n", r.subject.c_str(), r.tensor.c_str(),
              long(r.checked), r.max_error, r.analytic, r.numeric, r.passed ? "ok" : "FAILED");
}

}  // namespace

int gradcheck_command(int argc, char** argv) {
  cxxopts::Options options("attnres gradcheck",
                           "Compare every backward pass with central finite differences in float64 "
                           "(step 1e-6,\natol 1e-5, rtol 1e-3). Exit status 1 if one fails.\n");
  option<std::string>(options, "", "only", "TEXT", "Rows whose subject contains TEXT", "");
  flag(options, "", "failures", "Print failures alone");
  threads_option(options);
  const auto a = parse(options, argc, argv,
                       "  attnres gradcheck\n  attnres gradcheck --only depth_attention\n"
                       "  attnres gradcheck --only MHAR");
  if (!a) return 0;
  const std::string only = (*a)["only"].as<std::string>();
  long failed = 0, passed = 0;
  const auto report = [&](const std::vector<GradcheckResult>& results) {
    for (const auto& result : results) {
      if (result.subject.find(only) == std::string::npos) continue;
      if (passed + failed == 0) print_header();
      ++(result.passed ? passed : failed);
      if (!result.passed || !a->count("failures")) print_row(result);
    }
  };
  report(gradcheck_operations());
  report(gradcheck_variants());
  if (passed + failed == 0) throw UsageError("no operation or variant contains \"" + only + "\"");
  std::printf("%ld tensors passed, %ld failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace attnres
