#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py build_dir jobs: clang-tidy over the sources, one process a file, a few at a time.

A file that was clean is remembered under the hash of all that decides the answer (its text, the
project headers below it, .clang-tidy, how it is compiled) and not looked at again.
"""
import concurrent.futures
import hashlib
import json
import pathlib
import re
import subprocess
import sys

from sources import LIBRARY, ROOT, files

TIDY = "clang-tidy-14"
# The static analyzer takes nine tenths of the time.  With a third of the states that it looks at in a function by
# default, it takes less than half of that.
ANALYZER_STATES = 75000
OPTIONS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option",
           *(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={ANALYZER_STATES}"))]
CACHE = ROOT / "build" / ".tidy-cache"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)', re.M)


def find_header(name, beside):
    for folder in (beside, ROOT, ROOT / "include"):
        if (folder / name).is_file():
            return folder / name
    return None


def reached_from(path):
    """The file and every project header that it includes, directly or not."""
    reached, waiting = set(), [path]
    while waiting:
        file = waiting.pop()
        if file in reached:
            continue
        reached.add(file)
        found = (find_header(name, file.parent) for name in INCLUDE.findall(file.read_text(encoding="utf-8")))
        waiting.extend(header for header in found if header)
    return sorted(reached)


def fingerprint(path, command):
    digest = hashlib.sha256(" ".join([command, *OPTIONS]).encode())
    for file in [ROOT / ".clang-tidy", *reached_from(path)]:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def tidy(path, command, build):
    """Text about what is wrong, or None."""
    mark = CACHE / fingerprint(path, command)
    if mark.exists():
        return None
    done = subprocess.run([TIDY, "-p", str(build), *OPTIONS, str(path)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stdout + done.stderr
    mark.touch()
    return None


def main(build, jobs):
    database = json.loads((pathlib.Path(build) / "compile_commands.json").read_text(encoding="utf-8"))
    commands = {pathlib.Path(entry["file"]): entry["command"] for entry in database}
    wanted = [ROOT / path for path in files([*LIBRARY, "cli", "examples"], [".c"])]
    wanted = [path for path in wanted if path in commands and "tests" not in path.parts]
    CACHE.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(int(jobs)) as pool:
        answers = list(pool.map(lambda path: tidy(path, commands[path], build), wanted))
    faults = [answer for answer in answers if answer]
    print("\n".join(faults) or f"tidy: {len(wanted)} files, nothing to say")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
