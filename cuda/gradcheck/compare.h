// The rules by which kernels pass or fail, in one table, and the report.
#pragma once

#include <functional>

#include "cuda/gradcheck/depth_case.h"

namespace attnres {

/// One kind of tensor of a case, over all sites or sources: the worst of them.
struct TensorError {
  std::string subject, tensor;
  double max_error = 0;  ///< max |kernel - reference| / max |reference|
  double rms_error = 0;  ///< rms of the difference / rms of the reference
  double cosine = 1;
  double limit = 0;      ///< what max_error may be
  double rms_limit = 0;  ///< what rms_error may be
  std::string worst;     ///< "site 3 [1, 17]"
  bool passed = true;
};

/// Compares a kernel's result with the reference.  fp32: max error 2e-5, rms 1e-5.  bf16, the
/// three-way rule of FlashAttention: max error at most 2x (forward) or 3x (gradients) that of
/// `plain` plus 1e-5; rms at most 0.005, or 2x that of `plain` where that is larger: a peaked
/// softmax makes gradients small differences, and delta comes from o as it was rounded. A tensor's
/// scale is the largest entry of its kind over all sites: a gradient that is zero in theory has
/// none of its own.
std::vector<TensorError> compare(const DepthCase& c, const DepthResult& kernel,
                                 const DepthResult& reference, const DepthResult* plain);

using KernelUnderTest = std::function<DepthResult(const DepthCase&, const DepthInputs&)>;

/// Draws inputs, runs the three implementations, compares; runs the kernel twice and adds a row
/// "repeatable" that fails unless both runs gave the same bits.
std::vector<TensorError> check_depth_case(const DepthCase& c, const KernelUnderTest& kernel);

/// The list of tensors of a result, by name: for tests that perturb each.
std::vector<std::pair<std::string, std::vector<Matrix<double>>*>> tensors_of(DepthResult& result);

}  // namespace attnres
