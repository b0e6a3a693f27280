#!/bin/bash
# python_gpu.sh PACKAGE [FAKE]: runs python_gpu.py with the Python package in the folder PACKAGE; 77 where there is no
# Python.  FAKE is the fake CUDA library, which then stands for the driver.
# SPDX-License-Identifier: Apache-2.0
python=${TANDEM_TEST_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "skipped: no Python"
    exit 77
fi
if ! compgen -G "$1/tandem/_tandem.*.so" >/dev/null; then
    echo "skipped: no Python package in $1: build the product where Python's headers are, or use scripts/gpu-bundle"
    exit 77
fi
options=()
if [ $# -gt 1 ]; then
    work=$(mktemp -d) || exit 1
    trap 'rm -rf "$work"' EXIT
    mkdir "$work/gpus"
    echo "// The fake library brings its own kernels." >"$work/kernels.ptx"
    export TANDEM_CUDA_LIBRARY=$2 TANDEM_CUDA_KERNELS=$work/kernels.ptx FAKE_CUDA_DIRECTORY=$work/gpus
    export FAKE_CUDA_BYTES=$((256 << 20)) FAKE_CUDA_CONTEXT_BYTES=$((2 << 20))
    options=(--fake)
fi
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$1${PYTHONPATH:+:$PYTHONPATH} \
    "$python" "$(dirname "$0")/python_gpu.py" "${options[@]}"
