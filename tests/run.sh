#!/usr/bin/env bash
# Installs what is missing, builds everything and runs every test.  Arguments go to ctest:
#   ./tests/run.sh -R depth        only tests whose name contains "depth"
set -euo pipefail
cd "$(dirname "$0")/.."
source train/setup.sh

install_packages
configure build
cmake --build build
ctest --test-dir build --output-on-failure "$@"
