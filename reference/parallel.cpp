#include "reference/parallel.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#ifdef EIGEN_USE_BLAS
extern "C" void openblas_set_num_threads(int threads);
#endif

namespace attnres {

void set_threads(int threads) {
#ifdef EIGEN_USE_BLAS
  openblas_set_num_threads(1);
#endif
#ifdef _OPENMP
  if (threads > 0) omp_set_num_threads(threads);
#endif
  (void)threads;
}

int thread_count() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

const char* matrix_product_library() {
#ifdef EIGEN_USE_BLAS
  return "OpenBLAS";
#else
  return "Eigen";
#endif
}

}  // namespace attnres
