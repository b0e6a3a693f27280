#!/bin/bash
# Runs torch_share.py where there is a Python; 77 where there is none.
# SPDX-License-Identifier: Apache-2.0
if ! command -v python3 >/dev/null; then
    echo "skipped: no Python"
    exit 77
fi
exec python3 "$(dirname "$0")/torch_share.py" "$@"
