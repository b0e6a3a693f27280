#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cost.py [ROUND …]: counts the context switches and system calls of a call on each side.

Context switches are the kernel's counts of all threads in an undisturbed round; system calls are
strace's in a round of their own, in which everything is slower.  Wants strace, and no Ray.
"""
import collections
import os
import pathlib
import re
import subprocess
import sys
import time

import processes

ROUNDS = ("call_same_core", "call_own_cores", "pipelined", "call_mib")
SECONDS = 2.0
CALLS_OF = {"call_mib": 1024}  # Number of calls for each GiB in rounds that return GiB/s.
ATTACH_SECONDS = 0.7


def callee_of(caller):
    """Returns the process of the one actor of class echo below this process, named "echo ID"."""
    for pid in processes.descendants(caller):
        if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").startswith("echo "):
            return pid
    raise processes.Failed("the caller has no actor")


def switches(pid):
    """Returns the voluntary and involuntary context switches of all threads."""
    counts = collections.Counter()
    for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text(encoding="utf-8").splitlines():
            if "ctxt_switches" in line:
                counts[line.split("_")[0]] += int(line.split()[1])
    return counts


def calls_in(side, name):
    return side.ask(name, SECONDS)[0] * SECONDS * CALLS_OF.get(name, 1)


def traced(side, name, pid):
    """Returns the system calls of the process for each call, with their counts."""
    with subprocess.Popen(["strace", "-c", "-f", "-p", str(pid)], stderr=subprocess.PIPE,
                          text=True) as strace:
        time.sleep(ATTACH_SECONDS)
        calls = calls_in(side, name)
        strace.terminate()
        table = strace.stderr.read()
    found = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", table, re.M)
    return {name: int(count) / calls for count, name in found
            if name != "total" and int(count) / calls >= 0.01}


def report(side, name):
    side.ask(name, SECONDS / 4)
    caller = side.process.pid
    parts = {"caller": caller, "actor": callee_of(caller)}
    before = {part: switches(pid) for part, pid in parts.items()}
    calls = calls_in(side, name)
    print(f"{name}: {calls / SECONDS:.0f} calls a second")
    for part, pid in parts.items():
        counts = switches(pid)
        counts.subtract(before[part])
        made = ", ".join(f"{call} {count:.2f}" for call, count in traced(side, name, pid).items())
        print(f"  {part}, for each call: slept {counts['voluntary'] / calls:.2f}, interrupted "
              f"{counts['nonvoluntary'] / calls:.2f} times; {made}", flush=True)


def main():
    side = processes.tandem_side()
    for name in sys.argv[1:] or ROUNDS:
        cores = 2 if name == "call_own_cores" else 1
        if len(os.sched_getaffinity(0)) >= cores:
            report(side, name)
    side.end()


main()
