#!/usr/bin/env bash
# keep_ptxas_report.sh COMPILER ARGUMENTS...: compiles, and keeps what ptxas says of every kernel
# (registers, stack, spills) in OBJECT.ptxas for tests/cuda/resource_usage.sh.
set -uo pipefail
object=
for ((i = 1; i < $#; ++i)); do
  if [ "${!i}" = -o ]; then next=$((i + 1)); object=${!next}; fi
done
if [ -z "$object" ]; then exec "$@"; fi
"$@" 2>"$object.ptxas"
status=$?
grep -vE '^ptxas info|bytes stack frame|^$' "$object.ptxas" >&2
exit $status
