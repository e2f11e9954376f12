#!/usr/bin/env bash
# resource_usage.sh FOLDER: what ptxas gave each kernel, from the reports that the build kept there.
# Fails where a kernel keeps variables in local memory (spilled registers, or arrays that did not
# fit into registers), or where a kernel of the fast paths is missing.
set -euo pipefail
usage=$(find "$1" -name '*.ptxas' -exec cat {} + | c++filt)
awk '
  /Compiling entry function/ {
    name = $0; sub(/.*entry function ./, "", name); arch = name
    sub(/.* for ./, "", arch); sub(/.$/, "", arch)
    sub(/\(attnres.*/, "", name); gsub(/attnres::gpu::|\(anonymous namespace\)::|^void /, "", name)
  }
  /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
  /Used [0-9]+ registers/ {
    registers = $0; sub(/.*Used /, "", registers); registers += 0
    ++kernels
    if (registers > most) { most = registers; widest = name }
    if (stack > 0 || spilled > 0) {
      ++bad; print arch, name ": " stack " bytes of stack, " spilled " bytes spilled"
    }
  }
  END {
    print kernels + 0 " kernels, at most " most + 0 " registers (" widest "), " bad + 0 " with local memory"
    exit kernels < 60 || bad > 0
  }' <<<"$usage"
for kernel in fused_forward_kernel fused_gather_kernel keep_gradient_kernel grouped_forward_kernel \
              grouped_gather_kernel query_gradient_kernel; do
  grep -q "$kernel" <<<"$usage" || { echo "$kernel is missing"; exit 1; }
done
