#!/usr/bin/env bash
# Replays the gdb session of a document and compares every "$N = ..." line with what the debugger
# prints, number by number to 1e-9.  Status 77 (skipped) where gdb cannot run.
#   tests/debugger_session.sh docs/stepping-through.md build/one_site
set -euo pipefail
document=$1 program=$2
command -v gdb >/dev/null || { echo "skipped: gdb is not installed; by hand: apt-get install gdb"; exit 77; }
gdb -q -batch -nx -ex 'break main' -ex run -ex 'print 1+1' "$program" 2>&1 | grep -q '^\$1 = 2' ||
  { echo "skipped: gdb cannot run a program here"; exit 77; }

session=$(mktemp)
trap 'rm -f "$session"' EXIT
sed -n 's/^(gdb) //p' "$document" >"$session"
expected=$(grep '^\$[0-9]* = ' "$document")
actual=$(gdb -q -batch -nx -x "$session" "$program" 2>&1 | grep '^\$[0-9]* = ' || true)
paste -d'|' <(echo "$expected") <(echo "$actual") | awk -F'|' '
  {
    split($1, a, /[{}, ]+/); n = split($2, b, /[{}, ]+/); same = (n == length(a))
    for (i = 3; i <= n; ++i) { d = a[i] - b[i]; if (d > 1e-9 || d < -1e-9) same = 0 }
    if (!same) { bad = 1; print "document: " $1 "\ndebugger: " $2 }
  }
  END { print NR " printed values compared"; exit bad || NR < 4 }'
