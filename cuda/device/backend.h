// Code under cuda/ is compiled twice from the same files: by nvcc for a GPU, and as ordinary C++
// against the emulator.  A namespace named after the backend keeps the two apart in one program.
#pragma once

#ifdef ATTNRES_EMULATED
#define ATTNRES_BACKEND emulated
#else
#define ATTNRES_BACKEND gpu
#endif

#include <cuda_bf16.h>
#include <cuda_runtime.h>
