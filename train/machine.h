// How fast this machine multiplies matrices: the yardstick of model FLOPs utilisation.
#pragma once

namespace attnres {

/// Float matrix products per second x 2 m n k, best of several on all threads, through the same
/// operation that the model uses, in GFLOP/s.  Takes about a tenth of a second.
double measure_matmul_gflops();

/// Bytes per second that all threads together copy from a buffer to another, reads and writes
/// counted, best of several, in GB/s.
double measure_copy_gbytes();

}  // namespace attnres
