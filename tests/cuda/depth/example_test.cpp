// ---- 3. The check: cases, the function under test, a verdict per tensor. ----
#include "cuda/gradcheck/compare.h"
#include "tests/cuda/depth/example_kernel.h"
#include "tests/support.h"

using namespace attnres;

TEST_CASE("the example kernel agrees with the reference") {
  for (const int heads : {1, 2, 3, 16})
    for (const int window : {0, 2}) {
      DepthCase c;
      c.mixing = {DepthMixing::Kind::attention, heads, 1, window};
      c.channels = 192;
      long judged = 0;
      for (const TensorError& e : check_depth_case(c, emulated::example_result)) {
        INFO(e.subject, ", ", e.tensor, " at ", e.worst, ": max ", e.max_error, " of ", e.limit);
        CHECK(e.passed);
        ++judged;
      }
      CHECK(judged == 3);  // input, weights, repeatable
    }
}
