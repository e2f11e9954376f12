#!/usr/bin/env bash
# Does a pretrained model gain from depth attention?  Trains a residual model further on the bundled
# corpus, as it is and converted to the gated delta form, on the same tokens in the same order, and
# prints both.  Interrupted and called again, it goes on with what is missing.
#   ./train/compare_converted.sh MODEL [FOLDER [STEPS]]     default runs/converted 300; for a model of
#                                                           135 M parameters an hour on two cores
set -euo pipefail
cd "$(dirname "$0")/.."
program=${ATTNRES:-build/attnres} model=${1:?name a residual model: run, checkpoint or Hugging Face folder}
out=${2:-runs/converted} steps=${3:-300}
mkdir -p "$out"

"$program" tokenize --data data/corpus/austen.txt --tokenizer "$model" --out "$out/shards" >/dev/null
if [ ! -e "$out/delta/config.json" ]; then  # written last
  rm -rf "$out/delta"
  "$program" convert --checkpoint "$model" --out "$out/delta"
fi

# train_one RUN MODEL, unless that is done.
train_one() {
  [ ! -e "$out/$1/loss.svg" ] || return 0
  rm -rf "${out:?}/$1"
  "$program" train --init "$2" --data "$out/shards/*.bin" --seq 256 --tokens-per-step 512 --micro-batch 2 \
    --steps "$steps" --lr 2e-4 --warmup 20 --eval-every 100 --eval-tokens 16384 --save-every 0 --seed 1 \
    --out "$out/$1" | tee "$out/$1.txt"
}
plain=plain-$steps delta=delta-$steps
train_one "$plain" "$model"
train_one "$delta" "$out/delta"

# evaluations RUN FIELD: of every evaluation in its log.
evaluations() {
  grep '"type":"evaluation"' "$out/$1/log.jsonl" | sed "s/.*\"$2\":\([0-9.]*\).*/\1/"
}
echo "validation loss, nats per token"
printf '%-12s' "after steps"
evaluations "$plain" step | xargs printf '%11s'
for run in "$plain" "$delta"; do
  printf '\n%-12s' "$run"
  evaluations "$run" loss | xargs printf '%11.6f'
done
printf '\n'
"$program" inspect --checkpoint "$out/$delta" --data "$out/shards/*.bin" --batch 2 --batches 4 --seq 256 \
  >"$out/inspect.txt"
awk '$2 == 0 && $(NF - 1) == "gate" { g = $NF < 0 ? -$NF : $NF; sum += g; n++; if (g > most) { most = g; site = $1 } }
     END { printf "gates: %d, mean magnitude %.4f, largest %.4f (%s)\n", n, sum / n, most, site }' "$out/inspect.txt"
