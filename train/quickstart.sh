#!/usr/bin/env bash
# From a fresh machine to a trained model: installs, builds, trains the quickstart model on the
# bundled corpus (about three minutes on two cores) and shows what its depth attention learned.
# Options are passed on:  ./train/quickstart.sh --mixing residual --seed 2
set -euo pipefail
cd "$(dirname "$0")/.."
source train/setup.sh

install_packages
configure build
cmake --build build --target attnres

# An interrupted run continues; a finished one is kept, and the next gets the next name.
out=runs/quickstart n=1
while [ -e "$out" ]; do
  if [ $# -eq 0 ] && [ ! -e "$out/loss.svg" ] && compgen -G "$out/checkpoints/step-*[0-9]" >/dev/null; then
    exec build/attnres train --out "$out" --resume
  fi
  n=$((n + 1)) out=runs/quickstart-$n
done
exec build/attnres train --preset quickstart --mixing mhar --out "$out" "$@"
