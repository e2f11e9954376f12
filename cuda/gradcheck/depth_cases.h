// Which shapes and plans the kernels are checked at: every number that a kernel treats differently.
#pragma once

#include "cuda/gradcheck/compare.h"

namespace attnres {

/// Selects from the list; an empty or zero member selects everything.
struct CaseFilter {
  std::string plan;  ///< full, block, window, delta, delta-block, residual
  std::string type;  ///< fp32, bf16
  int heads = 0, channels = 0;
  bool selects(const DepthCase& c) const;
};

/// Every head size at H in {1, 2, 3, 4, 8, 16} and D in {64, 192, 512, 576, 768, 1024, 1280}; every
/// plan; N = 1, N odd; L from 2 to 24; every group size.
std::vector<DepthCase> depth_cases(const CaseFilter& filter = {});

}  // namespace attnres
