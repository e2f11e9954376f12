#!/usr/bin/env bash
# Sourced by train/quickstart.sh and tests/run.sh: installs what is missing where apt exists, and
# configures the Release build.  Elsewhere CMake fetches pinned releases of the libraries.

PACKAGES=(g++ cmake ninja-build libeigen3-dev nlohmann-json3-dev libcxxopts-dev doctest-dev
          libbenchmark-dev libopenblas-dev libpcre2-dev libutf8proc-dev)

missing_packages() {
  local package
  for package in "${PACKAGES[@]}"; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || echo "$package"
  done
}

install_packages() {
  command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || return 0
  local missing as_root=()
  missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  echo "installing: $missing"
  # shellcheck disable=SC2086  # one word per package
  if ! { "${as_root[@]}" apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
         "${as_root[@]}" apt-get install -y -qq --no-install-recommends $missing; } >/tmp/attnres-apt.log 2>&1
  then
    echo "could not install: $(missing_packages | tr '\n' ' ')- by hand: sudo apt-get install $missing(what is still missing is fetched by CMake; log: /tmp/attnres-apt.log)"
  fi
}

# configure BUILD_FOLDER: keeps an existing configuration.
configure() {
  local generator=()
  if ! command -v cmake >/dev/null; then
    echo "cmake is not installed; by hand: install CMake 3.22 or newer and a C++20 compiler (g++ 11, clang 14)" >&2
    exit 1
  fi
  if [ ! -f "$1/CMakeCache.txt" ]; then
    if command -v ninja >/dev/null; then generator=(-G Ninja); fi
    cmake -S . -B "$1" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release >"$1.configure.log" 2>&1 || {
      cat "$1.configure.log" >&2
      rm -f "$1/CMakeCache.txt"  # or the next call would take this for a configuration
      echo "configuring failed; by hand: install Eigen 3.4, nlohmann-json, cxxopts 3.1, PCRE2, utf8proc, doctest and Google Benchmark, or let CMake reach the network" >&2
      exit 1
    }
    rm -f "$1.configure.log"
  fi
}
