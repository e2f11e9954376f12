#!/usr/bin/env bash
# expect_report.sh PROGRAM BUG PATTERN: the program must fail and report both PATTERN and a line of
# its own source.
set -uo pipefail
output=$("$1" "$2" 2>&1)
status=$?
echo "$output" | head -40
[ $status -ne 0 ] || { echo "the bug \"$2\" was not found"; exit 1; }
grep -q "$3" <<<"$output" || { echo "no report of \"$3\""; exit 1; }
grep -Eq "planted_bugs.cpp:[0-9]+" <<<"$output" || { echo "the report names no line"; exit 1; }
