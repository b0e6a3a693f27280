#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""coverage.py BUILD_DIR CHOICE: prints, as a page, which part of the lines and branches of each folder ran.

BUILD_DIR has the counters that programs compiled for gcov left there. CHOICE are the options of ctest with which the
tests were chosen; empty for all tests. Only the product's folders count, and headers where its sources use them.
"""
import collections
import concurrent.futures
import gzip
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("runtime", "scheduler", "actors", "colocate", "cli")  # The product's sources.


def read_counters(notes):
    """Returns gcov's description of the counters of one object file, all 0 if no program with it has ended."""
    done = subprocess.run(["gcov", "--json-format", "--stdout", "--branch-probabilities", str(notes)],
                          cwd=notes.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    text = gzip.decompress(done.stdout) if done.stdout[:2] == b"\x1f\x8b" else done.stdout
    return json.loads(text)


class Coverage:
    """The lines and branches of the product, and how often each ran."""

    def __init__(self):
        self.lines = collections.defaultdict(int)  # (file, line): number of runs
        self.branches = collections.defaultdict(int)  # (file, line, number of the branch): number of runs

    def add(self, found):
        """Adds what gcov says of one object file. A header's line counts once, whoever includes it."""
        for file in found["files"]:
            path = os.path.relpath(os.path.join(found["current_working_directory"], file["file"]), ROOT)
            if path.split("/")[0] not in FOLDERS:
                continue
            for line in file["lines"]:
                self.lines[path, line["line_number"]] += line["count"]
                for number, branch in enumerate(line["branches"]):
                    self.branches[path, line["line_number"], number] += branch["count"]

    @staticmethod
    def by_folder(counts):
        """Returns {folder: [those that ran, all]}, and the sum of all folders under "all"."""
        sums = collections.defaultdict(lambda: [0, 0])
        for key, count in counts.items():
            for folder in (os.path.dirname(key[0]), "all"):
                sums[folder][0] += count > 0
                sums[folder][1] += 1
        return sums

    def rows(self):
        """Yields the lines of the table, the sum last."""
        lines, branches = self.by_folder(self.lines), self.by_folder(self.branches)
        for folder in [*sorted(lines.keys() - {"all"}), "all"]:
            cells = [f"{100 * ran / count:.1f} % | {ran} of {count}" if count else "– | –"
                     for ran, count in (lines[folder], branches[folder])]
            yield f"| {folder} | {cells[0]} | {cells[1]} |"


def main(build, choice):
    coverage = Coverage()
    notes = [*(build / "CMakeFiles").rglob("*.gcno"), *(build / "cli").rglob("*.gcno")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(read_counters, notes):
            coverage.add(found)
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, text=True,
                              check=True).stdout.strip()
    tests = f"the tests of `ctest {choice}`" if choice else "all tests"
    print(f"""# Coverage

Lines and branches of the product that ran in {tests} with the preset `coverage` (-O0), at revision {revision}, by
folder, as `scripts/coverage` counts them with gcov. Processes that end by `_exit()` count; what ran in processes that
were killed does not. A branch is one way out of a condition, `TDM_ASSERT` included.

| folder | lines | | branches | |
|---|---:|---:|---:|---:|""")
    for row in coverage.rows():
        print(row)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), sys.argv[2])
