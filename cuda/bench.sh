#!/usr/bin/env bash
# One command on a machine with a GPU: builds for it, checks every kernel against the float64
# reference, runs compute-sanitizer on a small case, measures, and writes one file of results.
#   ./cuda/bench.sh [RESULTS]        default: build-gpu/results.txt; about eight minutes
set -euo pipefail
cd "$(dirname "$0")/.."
source train/setup.sh

for tool in nvcc nvidia-smi; do
  command -v $tool >/dev/null || [ -x /usr/local/cuda/bin/$tool ] || {
    echo "$tool not found: this needs an NVIDIA GPU and the CUDA Toolkit, 12.0 or newer; without one, build/benchmark_depth_emulated counts bytes" >&2
    exit 1
  }
done
export PATH=$PATH:/usr/local/cuda/bin
results=${1:-build-gpu/results.txt}
mkdir -p build-gpu "$(dirname "$results")"

section() { printf '\n== %s\n' "$1"; }

install_packages
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
cmake -S . -B build-gpu -DCMAKE_BUILD_TYPE=Release -DATTNRES_TESTS=OFF \
      -DATTNRES_CUDA_ARCHITECTURES="$architecture" >build-gpu/configure.log 2>&1 ||
  { cat build-gpu/configure.log >&2; exit 1; }
cmake --build build-gpu --target attnres benchmark_depth --parallel

# A failing check is a result too: the file is written to its end, and the status tells.
failed() { echo "FAILED: $1"; }
{
  section "machine"
  date -u
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.memory --format=csv
  nvcc --version | tail -1
  git log -1 --format='commit %h, %cs' 2>/dev/null || true

  section "gradient check: attnres gradcheck --device cuda --failures"
  build-gpu/attnres gradcheck --device cuda --failures || failed "gradient check"

  section "compute-sanitizer: memory, races and barriers of every kernel at 64 channels"
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      compute-sanitizer --tool $tool --error-exitcode 1 \
        build-gpu/attnres gradcheck --device cuda --failures --channels 64 --heads 4 --plan full ||
        failed "compute-sanitizer $tool"
    done
  else
    echo "not installed"
  fi

  section "benchmark: benchmark_depth, medians of 5"
  build-gpu/benchmark_depth --benchmark_repetitions=5 --benchmark_report_aggregates_only=true 2>&1 ||
    failed "benchmark"

  section "PyTorch: tests/benchmark/pytorch_depth.py"
  if python3 -c 'import torch' 2>/dev/null; then
    python3 tests/benchmark/pytorch_depth.py || failed "PyTorch"
  else
    echo "PyTorch is not installed; by hand: pip install torch"
  fi
} 2>&1 | tee "$results"
printf '\nresults: %s\n' "$results"
! grep -q FAILED "$results"
