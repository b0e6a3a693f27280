#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vary.py MINUTES BUILD_DIR: runs the tests that take seeds with new ones, for that time.

Prints each seed. A test that fails is printed with what it said and with the command that repeats it. The tests of the
default run take fixed seeds; one that fails here is added to tests/seeds.txt together with its fix.
"""
import os
import pathlib
import re
import secrets
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as xml

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORLDS = 3000  # Worlds of the simulator in a round, one seed each.
CLUSTERS = 500  # Simulated clusters in a round, one seed each.
FUZZ_S = 5  # Seconds for each fuzz target in a round.
OUTPUT_END = 20000  # Characters of a failed test's output that are shown.


def with_seed(seed):
    """Returns the environment in which every test with random choices takes this seed."""
    # One moment of each kind is enough here: the next round has others.
    return {**os.environ, "TANDEM_TEST_SEED": str(seed), "TANDEM_SEED": str(seed), "TANDEM_KILLS": "1",
            "TANDEM_CRASHES": "1"}


class Vary:
    """Runs the parts of rounds until the time is over, and counts the failures."""

    def __init__(self, minutes, build):
        self.end = time.monotonic() + 60 * minutes
        self.build = build
        self.failed = 0

    def is_over(self):
        return time.monotonic() >= self.end

    def report(self, name, output, command):
        """Prints a failure and the command that repeats it."""
        self.failed += 1
        print(f"---- {name} failed\n{output[-OUTPUT_END:].strip()}\nto repeat it: {command}\n", flush=True)

    def simulate(self, seed):
        """Runs worlds of both simulators, with one seed after the other."""
        self.simulate_with("sim/worlds", "tests/sim_test", WORLDS, seed)
        self.simulate_with("sim/clusters", "tests/cluster_sim_test", CLUSTERS, seed)

    def simulate_with(self, name, program, count, seed):
        """Runs `count` worlds of one simulator."""
        done = subprocess.run([self.build / program, str(count), str(seed)], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if done.returncode != 0:
            world = re.search(r"TANDEM_SEED=(\d+)", done.stdout)
            self.report(name, done.stdout, f"{self.build / program} {count} {seed}" if world is None
                        else f"TANDEM_SEED={world[1]} TANDEM_TRACE=1 {self.build / program}")

    def run_tests(self, seed):
        """Runs the tests with the label `random`. They end although the time is over."""
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder) / "results.xml"
            subprocess.run(["ctest", "--test-dir", self.build, "-L", "^random$", "-j", str(os.cpu_count()),
                            "--output-junit", results, "--test-output-size-failed", "1000000"],
                           env=with_seed(seed), stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, check=False)
            for test in xml.parse(results).iter("testcase"):
                if test.get("status") == "fail":
                    name = test.get("name")
                    self.report(name, test.findtext("system-out") or "",
                                f"TANDEM_TEST_SEED={seed} TANDEM_SEED={seed} TANDEM_KILLS=1 TANDEM_CRASHES=1 "
                                f"ctest --test-dir {self.build} -R '^{name}$' --output-on-failure")

    def fuzz(self, seed):
        """Runs each fuzz target; the failed ones say which file has the input."""
        done = subprocess.run([ROOT / "scripts/fuzz", str(FUZZ_S)], env=with_seed(seed), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
        if done.returncode != 0:
            self.report("fuzz", done.stdout, f"TANDEM_SEED={seed} scripts/fuzz {FUZZ_S}, or the program in "
                        "build/fuzz/fuzz with the file in build/fuzz/crashes")

    def run(self):
        seeds = 0
        while not self.is_over():
            seed = secrets.randbelow(1 << 32)
            seeds += 1
            print(f"seed {seed}", flush=True)
            for part in (self.simulate, self.run_tests, self.fuzz):
                if not self.is_over():
                    part(seed)
        print(f"{seeds} seeds, {self.failed} failures")
        return 1 if self.failed else 0


if __name__ == "__main__":
    sys.exit(Vary(float(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()).run())
