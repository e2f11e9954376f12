// Finite differences judge every backward pass; and a wrong gradient does not get past them.
#include "reference/gradcheck.h"

#include "tests/support.h"

using namespace attnres;
using namespace attnres::test;

namespace {

void check_all(const std::vector<GradcheckResult>& results) {
  for (const auto& r : results) {
    INFO(r.subject, ", ", r.tensor, "[", r.worst, "]: analytic ", r.analytic, ", numeric ",
         r.numeric);
    CHECK(r.passed);
    CHECK(r.checked > 0);
  }
}

// Tensors whose gradient is zero by theory cannot be told from a scaled zero.
bool has_signal(const GradcheckResult& r) { return std::abs(r.numeric) > 2e-3; }

void check_that_all_fail(const std::vector<GradcheckResult>& results, std::size_t at_least) {
  std::size_t with_signal = 0;
  for (const auto& r : results) {
    if (!has_signal(r)) continue;
    ++with_signal;
    INFO(r.subject, ", ", r.tensor);
    CHECK(!r.passed);
  }
  CHECK(with_signal >= at_least);
}

}  // namespace

TEST_CASE("every operation agrees with finite differences in every input") {
  check_all(gradcheck_operations());
}

TEST_CASE("every variant of the whole model agrees with finite differences in every parameter") {
  check_all(gradcheck_variants());
}

TEST_CASE("a gradient that is wrong by one percent fails, for every tensor") {
  GradcheckOptions options;
  options.claim = 1.01;
  check_that_all_fail(gradcheck_operations(options), 35);
  check_that_all_fail(gradcheck_variants(options), 200);
}

TEST_CASE("a gradient that is not a number fails") {
  double x = 1;
  const double gradient = std::nan("");
  const auto results = gradcheck("nan", [&] { return x * x; }, {{"x", &x, &gradient, 1}});
  CHECK(!results[0].passed);
}
