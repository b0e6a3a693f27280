# SPDX-License-Identifier: Apache-2.0
"""Which files the style tests look at."""
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARY = ("runtime", "scheduler", "actors", "colocate")
EVERYTHING = ("include", *LIBRARY, "cli", "python", "examples", "bench", "tests")


def files(folders=EVERYTHING, suffixes=(".c", ".h")):
    """The C files below the folders, as paths relative to the root, sorted."""
    found = []
    for folder in folders:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in suffixes and path.is_file():
                found.append(path.relative_to(ROOT))
    return sorted(found)


def lines(path):
    return (ROOT / path).read_text(encoding="utf-8").splitlines()
