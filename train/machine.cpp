#include "train/machine.h"

#include <algorithm>
#include <chrono>

#include "reference/linear.h"
#include "reference/parallel.h"

namespace attnres {
namespace {

template <class Body>
double best_seconds(int repetitions, const Body& body) {
  double best = 1e30;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    body();
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

}  // namespace

double measure_matmul_gflops() {
  const Index N = 2048, D = 512;
  const Matrix<float> x = Matrix<float>::Constant(N, D, 0.5f),
                      W = Matrix<float>::Constant(D, D, 0.25f);
  Matrix<float> y(N, D);
  return 2.0 * N * D * D / best_seconds(12, [&] { linear_forward<float>(x, W, y); }) / 1e9;
}

double measure_copy_gbytes() {
  const Index size = Index(1) << 24;
  const Vector<float> from = Vector<float>::Ones(size);
  Vector<float> to = Vector<float>::Zero(size);
  const double seconds = best_seconds(8, [&] {
    for_each_tile(size, Index(1) << 18, [&](Index first, Index count) {
      to.segment(first, count) = from.segment(first, count);
    });
  });
  return 2.0 * double(size) * sizeof(float) / seconds / 1e9;
}

}  // namespace attnres
