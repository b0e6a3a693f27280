#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""seeds.py [key=value …]: runs the colocated job with several seeds, and with its test switches.

Prints a table of the scores on unseen prompts; fails if one is not what it should be.
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEFORE_BELOW = 0.1
SAME_WITHIN = 0.05
# name, settings, what the score after must exceed; None: it must stay where it was.
RUNS = [
    ("seed 0", ["job.seed=0"], 0.9),
    ("seed 1", ["job.seed=1"], 0.85),
    ("seed 2", ["job.seed=2"], 0.85),
    ("seed 3", ["job.seed=3"], 0.85),
    ("rewards shuffled", ["data.shuffle_rewards=true"], None),
    ("no updates", ["update.enabled=false"], None),
]
RESULT = re.compile(r"^reward ([0-9.]+) → ([0-9.]+) on (\d+) unseen prompts", re.M)


def run(settings):
    """(before, after, prompts, seconds), or None where the job failed; its words are on stderr."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as out:
        done = subprocess.run([ROOT / "build/release/tandem", "run", ROOT / "examples/colocated_rl/job.yaml",
                               "--plain", "--out", out, *settings], stdout=subprocess.PIPE, text=True, check=False)
    found = RESULT.search(done.stdout)
    if done.returncode != 0 or found is None:
        return None
    return float(found[1]), float(found[2]), int(found[3]), time.monotonic() - begin


def verdict(before, after, above):
    if above is None:
        return abs(after - before) <= SAME_WITHIN, f"within {SAME_WITHIN} of before"
    return before < BEFORE_BELOW and after > above, f"before < {BEFORE_BELOW}, after > {above}"


def main(settings):
    failed = 0
    print(f"{'run':18}{'before':>8}{'after':>8}{'prompts':>9}{'seconds':>9}   promised")
    for name, own, above in RUNS:
        result = run([*own, *settings])
        if result is None:
            failed += 1
            print(f"{name:18}  FAILED: it did not run to its end", flush=True)
            continue
        before, after, prompts, seconds = result
        holds, promise = verdict(before, after, above)
        failed += not holds
        print(f"{name:18}{before:8.3f}{after:8.3f}{prompts:9}{seconds:9.1f}   {promise}"
              f"{'' if holds else ': NO'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
