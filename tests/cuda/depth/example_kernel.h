// The example of docs/adding-a-kernel.md, for both backends.
#pragma once

#include "cuda/gradcheck/depth_case.h"

namespace attnres {
namespace emulated {
DepthResult example_result(const DepthCase& c, const DepthInputs& inputs);
}
namespace gpu {
DepthResult example_result(const DepthCase& c, const DepthInputs& inputs);
}
}  // namespace attnres
