#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""observe.py TANDEM FOLDER CLASS...: waits until actors of all these classes live at once and have answered calls.

It then writes what `tandem list actors` and `tandem list calls` print to FOLDER, and ends. TANDEM is the program.
"""
import json
import pathlib
import subprocess
import sys
import time


def listed(tandem, what, *options):
    """Return what a list prints; nothing while there is no node."""
    return subprocess.run([tandem, "list", what, *options], capture_output=True, text=True, check=False).stdout


def main(tandem, folder, *classes):
    folder = pathlib.Path(folder)
    while True:
        actors = json.loads(listed(tandem, "actors", "--json") or "[]")
        calls = json.loads(listed(tandem, "calls", "--json") or "[]")
        alive = {actor["class_name"] for actor in actors if actor["state"] == "ALIVE"}
        answered = {row["class_name"] for row in calls if row["finished"] > 0}
        if set(classes) <= alive & answered:
            break
        time.sleep(0.2)
    (folder / "actors.json").write_text(json.dumps(actors, indent=2), encoding="utf-8")
    (folder / "actors").write_text(listed(tandem, "actors"), encoding="utf-8")
    (folder / "calls").write_text(listed(tandem, "calls"), encoding="utf-8")
    print("alive at once, and each has answered calls:", *sorted(classes), flush=True)


main(*sys.argv[1:])
