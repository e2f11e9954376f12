// The kernel tests' cases on a real GPU.  Without one it says so and exits with 77, which ctest
// shows as skipped.
#include <cuda_runtime.h>

#include <cstdio>

#include "cuda/gradcheck/depth_cases.h"
#include "tests/cuda/depth/example_kernel.h"

using namespace attnres;

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU here: the kernels were checked on the emulator alone\n");
    return 77;
  }
  long failed = 0, checked = 0;
  const auto check = [&](const DepthCase& c, const KernelUnderTest& kernel) {
    for (const TensorError& e : check_depth_case(c, kernel)) {
      ++checked;
      if (e.passed) continue;
      ++failed;
      std::printf("%s, %s at %s: max %.2e of %.2e, rms %.2e of %.2e\n", e.subject.c_str(),
                  e.tensor.c_str(), e.worst.c_str(), e.max_error, e.limit, e.rms_error,
                  e.rms_limit);
    }
  };
  for (const DepthCase& c : depth_cases()) check(c, gpu::kernel_result);
  DepthCase example;
  example.mixing.kind = DepthMixing::Kind::attention;
  example.mixing.heads = 2;
  check(example, gpu::example_result);
  std::printf("%ld tensors checked, %ld failed\n", checked, failed);
  return failed == 0 ? 0 : 1;
}
