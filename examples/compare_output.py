#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_output.py expected.txt program: fails unless the program prints that and exits with 0.

A "…" in the expected text stands for anything within a line (pids, times).
"""
import difflib
import pathlib
import re
import subprocess
import sys


def line_matches(expected, printed):
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    return re.fullmatch(pattern, printed) is not None


def main(expected_path, program):
    expected = pathlib.Path(expected_path).read_text(encoding="utf-8").splitlines()
    try:
        done = subprocess.run([program], stdout=subprocess.PIPE, timeout=100, check=False)
    except subprocess.TimeoutExpired as late:
        print(f"{program}: still running after {late.timeout:.0f} s; it printed:")
        print((late.stdout or b"").decode(errors="replace"))
        return 1
    printed = done.stdout.decode(errors="replace").splitlines()
    same = len(expected) == len(printed) and all(map(line_matches, expected, printed))
    if not same:
        print("\n".join(difflib.unified_diff(expected, printed, "expected", "printed", lineterm="")))
    if done.returncode != 0:
        print(f"{program}: exit status {done.returncode}, expected 0")
    return 0 if same and done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
