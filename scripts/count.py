#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count.py report FOLDER: shows what failed and what was skipped, and counts all runs of tests.
count.py record FOLDER PRESET WHAT: adds a failure that is not a test's.

FOLDER has one <preset>.xml (JUnit, as ctest writes it) for each run, fuzz.txt as scripts/fuzz
prints it, and failures.txt.  A test is one ctest test, mostly a program; a case that a passing
program skipped is counted as skipped beside it.  Nothing is forgiven: a test that fails once fails
the run.

A skipped test counts as failed unless ACCEPTED_SKIPS lists its reason and the reason holds on this machine.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml


def gpu_is_missing(_):
    return not any(pathlib.Path("/dev").glob("nvidia[0-9]*"))


def gpu_is_real(_):
    """The tests use the real driver, which fails no call on demand and may lack GPUs for some tests."""
    return "TANDEM_TEST_REAL_GPU" in os.environ


def nvcc_is_missing(run):
    return run == "without-nvcc" or not any(map(shutil.which, ("nvcc", "/usr/local/cuda/bin/nvcc")))


def network_namespaces_are_forbidden(_):
    return subprocess.run(["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork",
                           "--mount-proc", "true"], capture_output=True, check=False).returncode != 0


def mount_namespaces_are_forbidden(_):
    return subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "true"], capture_output=True,
                          check=False).returncode != 0


def slurm_is_missing(_):
    """Slurm's daemons start as root only."""
    return os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmd", "srun", "munged")))


def python_packages_are_missing(_):
    python = os.environ.get("TANDEM_TEST_PYTHON", "python3")
    return subprocess.run([python, "-c", "import pytest, numpy, cloudpickle"], capture_output=True,
                          check=False).returncode != 0


def torch_packages_are_missing(_):
    python = os.environ.get("TANDEM_TEST_PYTHON", "python3")
    return subprocess.run([python, "-c", "import torch, transformers, megatron"], capture_output=True,
                          check=False).returncode != 0


def vendors_headers_are_missing(_):
    """The headers of CUDA and NCCL come with their toolkits, or with PyTorch's packages."""
    return not any(pathlib.Path(path).exists() for path in ("/usr/local/cuda", "/usr/include/cuda.h"))


def python_headers_are_missing(run):
    """The package is not built with sanitizers either."""
    include = subprocess.run(["python3", "-c", "import sysconfig; print(sysconfig.get_path('include'))"],
                             capture_output=True, text=True, check=False).stdout.strip()
    return run in ("asan", "tsan") or not pathlib.Path(include, "Python.h").exists()


def sanitizer_is_first(run):
    return run in ("asan", "tsan")


# The reasons for which a test may be skipped.  Each has a pattern for the reason's text, and a function that takes
# the name of the run and says whether the reason holds.
ACCEPTED_SKIPS = [
    (r".*", gpu_is_real),
    (r"libcuda\.so\.1: |cuInit: ", gpu_is_missing),
    (r"no nvcc", nvcc_is_missing),
    (r"the Python package (pytest|numpy|cloudpickle) is missing", python_packages_are_missing),
    (r"the Python package (torch|transformers|megatron) is missing", torch_packages_are_missing),
    (r"the Python package was not built", python_headers_are_missing),
    (r"no cuda\.h and no nccl\.h", vendors_headers_are_missing),
    (r"network namespaces", network_namespaces_are_forbidden),
    (r"mount namespaces", mount_namespaces_are_forbidden),
    (r"Slurm's test needs", slurm_is_missing),
    (r"the sanitizer's library wants to be the first", sanitizer_is_first),
]


def skip_is_accepted(run, reason):
    return any(re.match(pattern, reason) and holds(run) for pattern, holds in ACCEPTED_SKIPS)


def why_skipped(output, case=None):
    """Returns the reason that a program printed, or that it printed while it ran one case."""
    if case:
        output = output.rpartition(f"[  SKIPPED ] {case}")[0].rpartition(f"[ RUN      ] {case}")[2]
    reason = re.search(r"^\W*skipped: *(.+)$", output, re.M | re.I)
    return reason[1].strip() if reason else "no reason given"


class Count:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []

    def add_test(self, run, test):
        name = f"{run}: {test.get('name')}"
        output = test.findtext("system-out") or ""
        skipped_cases = re.findall(r"^\[  SKIPPED \] (?!\d+ test)(\S+)\s*$", output, re.M)
        passed_cases = re.findall(r"^\[       OK \] ", output, re.M)
        status = test.get("status")
        if status == "fail":
            self.failed.append(name)
            print(f"---- {name} failed\n{output.strip()}\n")
        elif status == "run" and not (skipped_cases and not passed_cases):
            self.passed += 1
            for case in dict.fromkeys(skipped_cases):
                self.add_skip(run, f"{name}, {case}", why_skipped(output, case))
        elif status in ("run", "notrun") and self.was_built(test):
            self.add_skip(run, name, why_skipped(output))
        else:
            self.failed.append(f"{name} (not run)")

    def add_skip(self, run, name, reason):
        if skip_is_accepted(run, reason):
            self.skipped.append(f"{name}: {reason}")
        else:
            self.failed.append(f"{name} (skipped for a reason that does not hold on this machine: {reason})")

    @staticmethod
    def was_built(test):
        skipped = test.find("skipped")
        return skipped is None or skipped.get("message", "").startswith("SKIP_")

    def add_folder(self, folder):
        for report in sorted(folder.glob("*.xml")):
            for test in xml.parse(report).iter("testcase"):
                self.add_test(report.stem, test)
        for line in self.lines(folder / "fuzz.txt"):
            if line.startswith("passed "):
                self.passed += 1
            elif line.startswith("failed "):
                self.failed.append(line.removeprefix("failed "))
        self.failed.extend(self.lines(folder / "failures.txt"))

    @staticmethod
    def lines(path):
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def report(folder):
    count = Count()
    count.add_folder(folder)
    for name in count.skipped:
        print(f"skipped  {name}")
    for name in count.failed:
        print(f"failed   {name}")
    print(f"{count.passed} passed, {len(count.failed)} failed, {len(count.skipped)} skipped")
    return 1 if count.failed or not count.passed else 0


def record(folder, preset, what):
    with open(folder / "failures.txt", "a", encoding="utf-8") as failures:
        failures.write(f"{preset}: {what}\n")
    return 0


if __name__ == "__main__":
    arguments = [pathlib.Path(sys.argv[2]), *sys.argv[3:]]
    sys.exit({"report": report, "record": record}[sys.argv[1]](*arguments))
