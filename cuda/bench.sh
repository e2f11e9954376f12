#!/usr/bin/env bash
# One command on a machine with a GPU: builds for it, checks every kernel against the float64
# reference, runs compute-sanitizer, measures, and writes one file of results.  Each section has a
# time limit; together they stay below ten minutes once the build is done.
#   ./cuda/bench.sh [RESULTS]        default: build-gpu/results.txt
# Where nothing can be installed or fetched, CMAKE_PREFIX_PATH names a folder with the libraries.
set -uo pipefail
results=$(realpath -m "${1:-$(dirname "$0")/../build-gpu/results.txt}")
cd "$(dirname "$0")/.."
source train/setup.sh
export PATH=$PATH:/usr/local/cuda/bin
for tool in nvcc nvidia-smi; do
  command -v $tool >/dev/null || {
    echo "$tool not found: this needs an NVIDIA GPU and the CUDA Toolkit, 12.0 or newer; without one, build/benchmark_depth_emulated counts bytes" >&2
    exit 1
  }
done
mkdir -p build-gpu "$(dirname "$results")"

section() { printf '\n== %s\n' "$1"; }
# run NAME SECONDS COMMAND...: a failure is a result too; the file is written to its end.
run() {
  local name=$1 seconds=$2
  shift 2
  timeout "$seconds" "$@" || echo "FAILED: $name (status $?; 124 is the limit of $seconds s)"
}

build() {
  local architecture
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
  cmake -S . -B build-gpu -DCMAKE_BUILD_TYPE=Release -DATTNRES_TESTS=OFF \
        -DATTNRES_CUDA_ARCHITECTURES="$architecture" &&
    cmake --build build-gpu --target attnres benchmark_depth --parallel "$(nproc)"
}

sanitize() {
  command -v compute-sanitizer >/dev/null || { echo "compute-sanitizer is not installed"; return; }
  # One warp per token; many warps, whose sums cross them; narrow heads; stream and gate.
  local tool cases
  for tool in memcheck racecheck synccheck initcheck; do
    for cases in "--channels 64 --heads 4 --plan full" "--channels 4096 --dtype bf16" \
                 "--channels 40 --dtype fp32" "--plan delta-block --heads 3 --dtype bf16"; do
      # shellcheck disable=SC2086  # one word per option
      run "compute-sanitizer $tool, $cases" 60 compute-sanitizer --tool $tool --error-exitcode 1 \
        build-gpu/attnres gradcheck --device cuda --failures $cases
    done
  done
}

{
  section "machine"
  date -u
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.memory --format=csv
  nvcc --version | tail -1
  git log -1 --format='commit %h, %cs' 2>/dev/null

  section "build"
  timeout 60 bash -c 'source train/setup.sh; install_packages'
  build >build-gpu/build.log 2>&1 || { echo "FAILED: build"; tail -20 build-gpu/build.log; }

  section "gradient check: attnres gradcheck --device cuda --failures"
  run "gradient check" 120 build-gpu/attnres gradcheck --device cuda --failures

  section "benchmark: benchmark_depth, medians of 3"
  run "benchmark" 180 build-gpu/benchmark_depth --benchmark_repetitions=3 \
    --benchmark_report_aggregates_only=true

  section "compute-sanitizer"
  sanitize

  section "PyTorch: tests/benchmark/pytorch_depth.py"
  if python3 -c 'import torch' 2>/dev/null; then
    run "PyTorch" 120 python3 tests/benchmark/pytorch_depth.py
  else
    echo "PyTorch is not installed; by hand: pip install torch"
  fi
} 2>&1 | tee "$results"
printf '\nresults: %s\n' "$results"
! grep -qE 'FAILED|ERROR OCCURRED' "$results"
