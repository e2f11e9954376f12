// Compares any hand-written gradient with central finite differences, in double.
// The rule and its numbers are torch.autograd.gradcheck's: |a - n| <= atol + rtol |n|.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reference/tensor.h"

namespace attnres {

struct GradcheckOptions {
  double step = 1e-6, atol = 1e-5, rtol = 1e-3;
  double claim = 1;  ///< multiplies the claimed gradients: 1.01 shows that a wrong one is caught
};

/// One input or parameter of a function, in place, and the gradient that is claimed for it.
struct GradcheckTensor {
  std::string name;
  double* values;
  const double* gradient;
  Index size;
};

/// The worst element of one tensor, or of one direction for the whole model.
struct GradcheckResult {
  std::string subject;  ///< operation or variant
  std::string tensor;
  Index checked = 0;                                ///< elements, or directions
  double max_error = 0, analytic = 0, numeric = 0;  ///< at the worst element
  Index worst = 0;
  bool passed = true;
};

/// Moves every element of every tensor by +-step and compares.  `loss` reads the tensors in place
/// and must leave them as they were.
std::vector<GradcheckResult> gradcheck(const std::string& subject,
                                       const std::function<double()>& loss,
                                       const std::vector<GradcheckTensor>& tensors,
                                       const GradcheckOptions& options = {});

/// Moves all tensors together along random unit directions: <gradient, direction> against the
/// difference quotient.  One result; for models with too many parameters to move one by one.
GradcheckResult gradcheck_directions(const std::string& subject,
                                     const std::function<double()>& loss,
                                     const std::vector<GradcheckTensor>& tensors, int directions,
                                     std::uint64_t seed, const GradcheckOptions& options = {});

/// Every operation of the reference, each input and parameter of it.
std::vector<GradcheckResult> gradcheck_operations(const GradcheckOptions& options = {});
/// Every variant of the whole model: each parameter tensor, and random directions.
std::vector<GradcheckResult> gradcheck_variants(const GradcheckOptions& options = {});

}  // namespace attnres
