#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_cycles.py [--list]: fails if too many modules of the library depend on each other in a cycle.

A module is NAME.c with its NAME.h, or one of them alone.  Module a depends on module b if a file of a includes a header
of b, or mentions a function with external linkage that b defines; so a header that only declares the functions of other
modules does not hide a dependency.  A strongly connected set of modules may have SET_MAX members.  The sets that are
larger are listed in cycles.txt by one member and their size; a set may only become smaller.
"""
import pathlib
import re
import sys

from sources import ROOT, files, lines

SET_MAX = 4
LIBRARY = ("include", "runtime", "scheduler", "actors", "colocate")
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
DEFINITION = re.compile(r"^(?!static\b|typedef\b|extern\b)[a-z][^;{}()=#]*?\b(tdm_\w+)\((?:[^;{}])*\)\n\{", re.M)
NAME = re.compile(r"\btdm_\w+")
KNOWN = pathlib.Path(__file__).resolve().parent / "cycles.txt"


def module_of(path):
    return str(pathlib.PurePath(path).with_suffix(""))


def read_modules():
    """Returns the code of each module without comments and strings, and the headers that it includes."""
    code, included = {}, {}
    for path in files(LIBRARY, [".c", ".h"]):
        text = "\n".join(lines(path))
        module = module_of(path)
        included.setdefault(module, set()).update(map(module_of, INCLUDE.findall(text)))
        code[module] = code.get(module, "") + COMMENT_OR_STRING.sub(" ", text)
    return code, included


def dependencies():
    code, included = read_modules()
    defined_in = {name: module for module, text in code.items() for name in DEFINITION.findall(text)}
    graph = {}
    for module, text in code.items():
        used = {defined_in[name] for name in NAME.findall(text) if name in defined_in}
        graph[module] = sorted(((included[module] & code.keys()) | used) - {module})
    return graph


def strong_sets(graph):
    """Tarjan's algorithm, without recursion."""
    order, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in graph:
        if root in order:
            continue
        work = [(root, iter(graph[root]))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            module, following = work[-1]
            advanced = False
            for other in following:
                if other not in order:
                    order[other] = low[other] = len(order)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph[other])))
                    advanced = True
                    break
                if other in on_stack:
                    low[module] = min(low[module], order[other])
            if advanced:
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[module])
            if low[module] == order[module]:
                members = []
                while not members or members[-1] != module:
                    members.append(stack.pop())
                    on_stack.discard(members[-1])
                found.append(sorted(members))
    return found


def main(*arguments):
    sets = sorted((members for members in strong_sets(dependencies()) if len(members) > SET_MAX), key=len, reverse=True)
    if "--list" in arguments:
        for members in sets:
            print(len(members), *members)
        return 0
    allowed = {}
    for line in KNOWN.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            count, member = line.split()
            allowed[member] = int(count)
    failed = 0
    for members in sets:
        count_max = max([SET_MAX, *(allowed[member] for member in members if member in allowed)])
        if len(members) > count_max:
            failed = 1
            print(f"{len(members)} modules depend on each other in a cycle, at most {count_max}:", *members)
    for member, count in allowed.items():
        found = max((len(members) for members in sets if member in members), default=0)
        if found < count:
            failed = 1
            print(f"cycles.txt: the set of {member} has {found} modules now, not {count}: lower or remove the number")
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
