#!/usr/bin/env bash
# The comparison of docs/results: residual, AttnRes, block AttnRes and MHAR on the bundled corpus.
# First the learning rate of each arm (seed 0, half the steps), then three seeds at the best rate.
# About an hour on two cores; interrupted and called again, it goes on with what is missing.
#   ./train/compare.sh [FOLDER]          default runs/compare
set -euo pipefail
cd "$(dirname "$0")/.."
program=${ATTNRES:-build/attnres}
out=${1:-runs/compare}
arms=(residual attnres block-attnres mhar)
rates=(1.5e-3 3e-3 6e-3)
mkdir -p "$out"

run_folder() { echo "$out/$1-lr$2-seed$3-steps$4"; }

# train ARM RATE SEED STEPS: one run on one thread (its bits are those of any number), unless done.
train() {
  local run
  run=$(run_folder "$@")
  [ ! -e "$run/loss.svg" ] || return 0
  rm -rf "$run"
  "$program" train --mixing "$1" --lr "$2" --seed "$3" --steps "$4" --save-every 0 --eval-every 0 \
    --eval-tokens 262144 --threads 1 --out "$run" >"$run.txt"
}
export -f train run_folder
export program out

# Reads "ARM RATE SEED STEPS" lines and keeps every core busy with one of them.
train_all() { xargs -P "$(nproc)" -L 1 bash -c 'train "$@"' train; }

bits_per_byte() {
  grep '"type":"evaluation"' "$(run_folder "$@")/log.jsonl" | tail -1 |
    sed 's/.*"bits_per_byte":\([0-9.]*\).*/\1/'
}

for arm in "${arms[@]}"; do
  for rate in "${rates[@]}"; do echo "$arm $rate 0 700"; done
done | train_all

echo "learning rate, seed 0, 700 steps: validation bits per byte"
printf '%-14s' arm; printf '%10s' "${rates[@]}"; printf '      best\n'
declare -A best
for arm in "${arms[@]}"; do
  printf '%-14s' "$arm"
  lowest=99
  for rate in "${rates[@]}"; do
    bits=$(bits_per_byte "$arm" "$rate" 0 700)
    printf '%10.4f' "$bits"
    if awk "BEGIN {exit !($bits < $lowest)}"; then lowest=$bits best[$arm]=$rate; fi
  done
  printf '%10s\n' "${best[$arm]}"
done

for arm in "${arms[@]}"; do
  for seed in 1 2 3; do echo "$arm ${best[$arm]} $seed 1400"; done
done | train_all

echo
echo "three seeds at the best rate, 1400 steps: validation bits per byte"
printf '%-14s%10s%10s%10s%10s%12s\n' arm "seed 1" "seed 2" "seed 3" mean "deviation"
for arm in "${arms[@]}"; do
  printf '%-14s' "$arm"
  all=()
  for seed in 1 2 3; do
    all+=("$(bits_per_byte "$arm" "${best[$arm]}" "$seed" 1400)")
    printf '%10.4f' "${all[-1]}"
  done
  awk -v a="${all[0]}" -v b="${all[1]}" -v c="${all[2]}" 'BEGIN {
    m = (a + b + c) / 3; s = sqrt(((a-m)^2 + (b-m)^2 + (c-m)^2) / 2); printf "%10.4f%12.4f\n", m, s }'
done
