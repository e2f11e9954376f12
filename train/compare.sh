#!/usr/bin/env bash
# The comparison of docs/results: residual, AttnRes, block AttnRes and MHAR on the bundled corpus,
# three seeds each, at the quickstart's learning rate.  Interrupted and called again, it goes on with
# what is missing.
#   ./train/compare.sh [FOLDER [STEPS]]          default runs/compare 700, about 20 minutes on two cores
set -euo pipefail
cd "$(dirname "$0")/.."
export program=${ATTNRES:-build/attnres} out=${1:-runs/compare} steps=${2:-700}
arms=(residual attnres block-attnres mhar)
seeds=(1 2 3)
mkdir -p "$out"

# train_one ARM SEED: on one thread (its bits are those of any number), unless that is done.
train_one() {
  local run="$out/$1-seed$2"
  [ ! -e "$run/loss.svg" ] || return 0
  rm -rf "$run"
  "$program" train --mixing "$1" --seed "$2" --steps "$steps" --save-every 0 --eval-every 0 \
    --eval-tokens 262144 --threads 1 --out "$run" >"$run.txt"
}
export -f train_one

bits_per_byte() {
  grep '"type":"evaluation"' "$out/$1-seed$2/log.jsonl" | tail -1 |
    sed 's/.*"bits_per_byte":\([0-9.]*\).*/\1/'
}

# Seeds in the outer loop: an interrupted comparison has whole rows to show.
for seed in "${seeds[@]}"; do
  for arm in "${arms[@]}"; do echo "$arm $seed"; done
done | xargs -P "$(nproc)" -L 1 bash -c 'train_one "$@"' train_one

echo "validation bits per byte after $steps steps"
printf '%-14s%10s%10s%10s%10s%12s\n' arm "seed 1" "seed 2" "seed 3" mean "deviation"
for arm in "${arms[@]}"; do
  printf '%-14s' "$arm"
  all=()
  for seed in "${seeds[@]}"; do
    all+=("$(bits_per_byte "$arm" "$seed")")
    printf '%10.4f' "${all[-1]}"
  done
  awk -v a="${all[0]}" -v b="${all[1]}" -v c="${all[2]}" 'BEGIN {
    m = (a + b + c) / 3; s = sqrt(((a-m)^2 + (b-m)^2 + (c-m)^2) / 2); printf "%10.4f%12.4f\n", m, s }'
done
