#!/usr/bin/env bash
# All that needs a GPU, on a bare machine, in order of worth and within eight minutes: `OUT=some/folder tests/gpu/run.sh`.
# `--rehearse` runs the same steps on a CPU with the tiny model. No step stops those after it; a short table comes last,
# everything else lies in OUT: the table, the measured profiles, and an archive of logs, figures, runs and comparisons.
#
# Needs Python 3.12 with torch, triton and transformers, and no network. What such a machine lacks comes as wheels in
# $WHEELS (default: tests/gpu/wheels); fetch them where there is a network:
#   pip download --no-deps --only-binary=:all: --python-version 3.12 --platform manylinux_2_17_x86_64 \
#     --platform manylinux2014_x86_64 -d tests/gpu/wheels simpy pydantic pydantic-core annotated-types typing-inspection
# with pydantic-core as pydantic asks for it. flashinfer-python's wheel is welcome: its decode kernel is a peer.
set -uo pipefail
cd "$(dirname "$0")/../.."

REHEARSE=${1:-}
if [ -n "$REHEARSE" ] && [ "$REHEARSE" != --rehearse ]; then
  echo "usage: OUT=FOLDER tests/gpu/run.sh [--rehearse]" >&2
  exit 2
fi
LIMIT=${LIMIT:-470}                 # seconds for everything
OUT=$(mkdir -p "${OUT:-runs/gpu}" && cd "${OUT:-runs/gpu}" && pwd)
WORK=$(mktemp -d)
WHEELS=${WHEELS:-tests/gpu/wheels}
if [ -z "${PYTHON:-}" ]; then
  PYTHON=python3
  [ -n "$REHEARSE" ] && [ -x .venv/bin/python ] && PYTHON=.venv/bin/python
fi
TANDEM=("$PYTHON" -c "from cli import app; app()")
mkdir -p "$WORK/logs" "$WORK/figures" "$WORK/site"
export PYTHONPATH="$PWD:$WORK/site${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 COLUMNS=200 NO_COLOR=1
export TRITON_CACHE_DIR="$WORK/triton"

if [ -n "$REHEARSE" ]; then
  LARGE=tiny SMALL=tiny ON=(--device cpu) CALIBRATE=(--quick --repeats 3)
  FEW=(--set workload.num_requests=5 --set workload.output_tokens=4 --set workload.text_tokens=20)
else
  LARGE=qwen2-vl-7b SMALL=qwen2-vl-2b ON=(--device cuda) CALIBRATE=(--repeats 5) FEW=()
fi

step() { # NAME SECONDS COMMAND...: under a timeout of its own, and no longer than there is time left
  local name=$1 limit=$2 left=$((LIMIT - SECONDS)) start=$SECONDS code
  shift 2
  if [ "$left" -lt 10 ]; then
    printf '%s\tno time left\t0\n' "$name" >> "$WORK/steps.tsv"
    return 1
  fi
  [ "$limit" -gt "$left" ] && limit=$left
  OUT="$WORK/figures" timeout -s INT -k 10 "$limit" "$@" > "$WORK/logs/$name.log" 2>&1
  code=$?
  case $code in 0) code=ok ;; 124 | 137) code="stopped after $limit s" ;; *) code="exit code $code" ;; esac
  printf '%s\t%s\t%s\n' "$name" "$code" $((SECONDS - start)) >> "$WORK/steps.tsv"
  echo "$name: $code, $((SECONDS - start)) s"
  [ "$code" = ok ]
}

install() { # the wheels, and the project's name and version, which its calibrations state
  if compgen -G "$WHEELS/*.whl" > /dev/null; then
    "$PYTHON" -m pip install -q --no-index --no-deps --no-compile --target "$WORK/site" "$WHEELS"/*.whl || return 1
  fi
  command -v nvidia-smi > /dev/null && nvidia-smi
  "$PYTHON" -c "from setuptools import setup; setup()" -q egg_info --egg-base "$WORK/site" &&
    "$PYTHON" -c "import cli, sim, torch, transformers; print(torch.__version__, transformers.__version__)"
}

profile() { # MODEL SECONDS: measured, fitted, and kept
  local csv="$WORK/$1.csv"
  step "calibrate-$1" "$2" "${TANDEM[@]}" calibrate --model "$1" "${ON[@]}" "${CALIBRATE[@]}" --out "$csv"
  [ -f "$csv" ] && step "fit-$1" 30 "${TANDEM[@]}" fit "$csv" && cp "$csv" "${csv%.csv}.json" "$OUT"
}

pair() { # SCENARIO SECONDS: replayed, simulated with the measured profile, and compared; three policies, two loads
  local yaml="tests/gpu/scenarios/$1.yaml" priced=()
  local sets=(--set "policy.kind=unbudgeted,head_of_line,eager" --set "workload.arrivals.rate=8,24" --set "model=$LARGE")
  [ -f "$WORK/$LARGE.json" ] && priced=(--set "profile=$WORK/$LARGE.json")
  sets+=("${FEW[@]}" "${priced[@]}" --no-plots)
  step "replay-$1" "$2" "${TANDEM[@]}" replay "$yaml" "${ON[@]}" "${sets[@]}" --out "$WORK/runs/$1.live"
  step "run-$1" 30 "${TANDEM[@]}" run "$yaml" "${sets[@]}" --out "$WORK/runs/$1" &&
    step "compare-$1" 40 "${TANDEM[@]}" compare "$WORK/runs/$1" "$WORK/runs/$1.live" --no-plots
}

storage() { # ARM OPTIONS...: what the encoder's outputs cost in memory
  local arm=$1
  shift
  step "storage-$arm" 40 "${TANDEM[@]}" replay tests/gpu/scenarios/photos.yaml "${ON[@]}" --set "model=$SMALL" \
    "${FEW[@]}" --no-plots "$@" --out "$WORK/storage/$arm"
}

export -f install
export PYTHON WHEELS WORK
step install 60 bash -c install
step allocator 30 "$PYTHON" tests/gpu/allocator.py $REHEARSE
step kernels 110 "$PYTHON" tests/gpu/kernels.py $REHEARSE
step exactness 70 "$PYTHON" tests/gpu/exactness.py $REHEARSE --model "$SMALL"
step graphs 60 "$PYTHON" tests/gpu/capture_check.py $REHEARSE --model "$LARGE"
profile "$LARGE" 100
[ "$SMALL" = "$LARGE" ] || profile "$SMALL" 60
pair photos 110
pair chat 90
storage per_item --encoder-storage per_item
storage rows --encoder-storage rows
[ -n "$REHEARSE" ] || storage rows_in_pool --encoder-storage rows --encoder-in-graph-pool
step peers 60 "$PYTHON" tests/gpu/peers.py $REHEARSE --model "$SMALL"

"$PYTHON" tests/gpu/summary.py "$WORK" > "$OUT/table.txt" 2>&1
rm -rf "$WORK/site" "$WORK/triton"
tar -czf "$OUT/results.tar.gz" -C "$WORK" . && rm -rf "$WORK"
echo
cat "$OUT/table.txt"
