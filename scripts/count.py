#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""count.py report FOLDER: shows what failed and what was skipped, and counts all runs of tests.
count.py record FOLDER PRESET WHAT: adds a failure that is not a test's.

FOLDER has one <preset>.xml (JUnit, as ctest writes it) for each run, fuzz.txt as scripts/fuzz
prints it, failures.txt, and again/<preset>.xml of the failed tests that were repeated.  A test is
one ctest test, mostly a program; a case that a passing program skipped is counted as skipped
beside it.  A test that failed and then passed each time is unsteady: a defect to be mended, of
the test or of what it tests, but a few among hundreds on a loaded machine fail no run.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml

UNSTEADY_MAX = 3


def why_skipped(output):
    reason = re.search(r"^\W*skipped: *(.+)$", output, re.M | re.I)
    return reason[1].strip() if reason else "no reason given"


class Count:
    def __init__(self):
        self.passed, self.failed, self.skipped, self.unsteady = 0, [], [], []

    def add_test(self, run, test, steady_now):
        name = f"{run}: {test.get('name')}"
        output = test.findtext("system-out") or ""
        skipped_cases = re.findall(r"^\[  SKIPPED \] (?!\d+ test)(\S+)\s*$", output, re.M)
        passed_cases = re.findall(r"^\[       OK \] ", output, re.M)
        status = test.get("status")
        if status == "fail" and test.get("name") in steady_now:
            self.unsteady.append(name)
            print(f"---- {name} failed once, and passed when it was repeated\n{output.strip()}\n")
        elif status == "fail":
            self.failed.append(name)
            print(f"---- {name} failed\n{output.strip()}\n")
        elif status == "run" and not (skipped_cases and not passed_cases):
            self.passed += 1
            for case in dict.fromkeys(skipped_cases):
                self.skipped.append(f"{name}, {case}: {why_skipped(output)}")
        elif status in ("run", "notrun") and self.was_built(test):
            self.skipped.append(f"{name}: {why_skipped(output)}")
        else:
            self.failed.append(f"{name} (not run)")

    @staticmethod
    def was_built(test):
        skipped = test.find("skipped")
        return skipped is None or skipped.get("message", "").startswith("SKIP_")

    def add_folder(self, folder):
        for report in sorted(folder.glob("*.xml")):
            steady_now = self.passed_again(folder / "again" / report.name)
            for test in xml.parse(report).iter("testcase"):
                self.add_test(report.stem, test, steady_now)
        for line in self.lines(folder / "fuzz.txt"):
            if line.startswith("passed "):
                self.passed += 1
            elif line.startswith("failed "):
                self.failed.append(line.removeprefix("failed "))
        self.failed.extend(self.lines(folder / "failures.txt"))
        if len(self.unsteady) > UNSTEADY_MAX:
            self.failed.append(f"{len(self.unsteady)} unsteady tests, and {UNSTEADY_MAX} are forgiven")

    @staticmethod
    def passed_again(report):
        tests = xml.parse(report).iter("testcase") if report.exists() else ()
        return {test.get("name") for test in tests if test.get("status") == "run"}

    @staticmethod
    def lines(path):
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def report(folder):
    count = Count()
    count.add_folder(folder)
    for name in count.skipped:
        print(f"skipped  {name}")
    for name in count.unsteady:
        print(f"unsteady {name}")
    for name in count.failed:
        print(f"failed   {name}")
    unsteady = f", {len(count.unsteady)} unsteady" if count.unsteady else ""
    print(f"{count.passed} passed, {len(count.failed)} failed, {len(count.skipped)} skipped{unsteady}")
    return 1 if count.failed or not count.passed else 0


def record(folder, preset, what):
    with open(folder / "failures.txt", "a", encoding="utf-8") as failures:
        failures.write(f"{preset}: {what}\n")
    return 0


if __name__ == "__main__":
    arguments = [pathlib.Path(sys.argv[2]), *sys.argv[3:]]
    sys.exit({"report": report, "record": record}[sys.argv[1]](*arguments))
