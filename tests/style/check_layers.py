#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails when a file includes what the table in layers.txt does not let its folder see."""
import pathlib
import re
import sys

from sources import ROOT, files, lines

GUARDED = ("openssl/ssl.h", "event2/", "event.h", "hiredis/", "cuda", "nccl", "cmocka", "cblas")
INCLUDE = re.compile(r'\s*#\s*include\s*(["<])([^">]+)')


class Layer:
    def __init__(self, line):
        self.folder, _, seen = (part.strip() for part in line.partition(":"))
        inside, outside = seen.split("|")
        self.inside = (self.folder, *inside.split())
        self.outside = tuple(outside.split())


def read_layers():
    text = (pathlib.Path(__file__).parent / "layers.txt").read_text(encoding="utf-8")
    return [Layer(line) for line in text.splitlines() if line and not line.startswith("#")]


def is_below(path, folder):
    return path == folder or path.startswith(folder + "/")


def layer_of(path, layers):
    holders = [layer for layer in layers if is_below(path, layer.folder)]
    return max(holders, key=lambda layer: len(layer.folder), default=None)


def target_of(file, quote, name, layers):
    """The project file an include names, relative to the root; None if it is outside."""
    if name.startswith("tandem/"):
        return f"include/{name}"
    beside = file.parent / name
    if quote == '"' and (ROOT / beside).is_file():
        return beside.as_posix()
    return name if layer_of(name, layers) else None


def breaches_in(file, layers):
    layer = layer_of(file.as_posix(), layers)
    for number, line in enumerate(lines(file), 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        target = target_of(file, found[1], found[2], layers)
        if target is not None:
            allowed = any(is_below(target, folder) for folder in layer.inside)
        else:
            allowed = not found[2].startswith(GUARDED) or found[2].startswith(layer.outside or ("\n",))
        if not allowed:
            yield f"{file}:{number}: {layer.folder} may not include {found[2]}"


def main():
    layers = read_layers()
    breaches = [breach for file in files() for breach in breaches_in(file, layers)]
    print("\n".join(breaches) or "layers: nothing to say")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
