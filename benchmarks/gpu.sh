#!/usr/bin/env bash
# On one GPU of 80 GB or more with torch and transformers, without network, under eight minutes:
# the equality checks on the device, then steps at N = 512 beside plain generate and flat training.
# Leaves the log and gpu.json in OUT (default benchmarks/results). Not run here: there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-benchmarks/results}
device=${DEVICE:-cuda}
python=${PYTHON:-python3}
mkdir -p "$out"
export PYTHONPATH=src:tests:benchmarks HF_HUB_OFFLINE=1
{
  timeout 150 "$python" benchmarks/gpu_equality.py --device "$device"
  echo "equality checks that failed: $?"
  timeout 320 "$python" benchmarks/gpu_step.py --device "$device" --out "$out/gpu.json" "$@"
} 2>&1 | tee "$out/gpu.log"
