// Every operation is compiled once for each scalar in its own .cpp: double is the oracle, float
// trains on a CPU.  Headers stay small and callers do not recompile Eigen expressions.
#pragma once

#define ATTNRES_FOR_EACH_SCALAR(INSTANTIATE) \
  INSTANTIATE(float)                         \
  INSTANTIATE(double)
