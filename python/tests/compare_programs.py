# SPDX-License-Identifier: Apache-2.0
"""Runs programs on Ray and on Tandem and compares what they print.

    compare_programs.py run OUTPUT_DIR COMMAND... -- PROGRAM...   runs COMMAND PROGRAM and keeps what each prints
    compare_programs.py compare RAY_DIR TANDEM_DIR                compares two such folders; exits with 1 if any differs

Lines of actors and tasks, "(Name pid=12) text", are compared as a set. All other lines must have the same order. What
Ray itself reports on standard output, "(raylet) text" and the traceback behind it, is left out.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

TIMEOUT_S = 180
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
PREFIX = re.compile(r"^\((.*?) pid=\d+(, ip=[^)]*)?\) ")


def run(output, command, programs):
    """Run each program and write its output, its errors and its exit status to the folder."""
    output.mkdir(parents=True, exist_ok=True)
    settings = {**os.environ, "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_DISABLE_IMPORT_WARNING": "1"}
    for program in programs:
        begin = time.monotonic()
        try:
            done = subprocess.run([*command, program], capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
                                  env=settings)
            result = {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        except subprocess.TimeoutExpired as expired:
            result = {"status": "timeout", "stdout": (expired.stdout or b"").decode(),
                      "stderr": (expired.stderr or b"").decode()}
        result["seconds"] = round(time.monotonic() - begin, 1)
        name = pathlib.Path(program).stem
        (output / f"{name}.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        print(f"{name}: status {result['status']}, {result['seconds']} s", flush=True)


def without_reports(lines):
    """Return the lines without those in which Ray reports deaths of workers and retries."""
    kept = []
    in_traceback = False
    for line in lines:
        if in_traceback:
            in_traceback = line.startswith((" ", "ray::"))  # The line of the exception is the last.
        elif line.startswith("(raylet) "):
            in_traceback = line.endswith("User exception:")
        else:
            kept.append(line)
    return kept


def parts_of(result):
    """Return (exit status, the driver's lines, the sorted lines of actors and tasks)."""
    lines = without_reports([COLOUR.sub("", line) for line in result["stdout"].splitlines()])
    own = [line for line in lines if not PREFIX.match(line)]
    others = sorted(PREFIX.sub(r"(\1 pid=…) ", line) for line in lines if PREFIX.match(line))
    return result["status"], own, others


def compare(ray, tandem):
    """Print what differs and return the number of programs that differ."""
    different = 0
    for path in sorted(ray.glob("*.json")):
        results = [json.loads((folder / path.name).read_text(encoding="utf-8")) for folder in (ray, tandem)]
        of_ray, of_tandem = map(parts_of, results)
        same = of_ray == of_tandem
        different += not same
        lines = len(of_ray[1]) + len(of_ray[2])
        print(f"{path.stem}: {'equal' if same else 'DIFFERENT'}, {lines} lines, "
              f"Ray {results[0]['seconds']} s, Tandem {results[1]['seconds']} s")
        if not same:
            for what, one, other in zip(("status", "driver", "actors"), of_ray, of_tandem):
                if one != other:
                    print(f"  {what}: Ray    {one}\n  {what}: Tandem {other}")
            print("  stderr of Tandem:", results[1]["stderr"][-1500:])
    return different


def main():
    if len(sys.argv) > 4 and sys.argv[1] == "run" and "--" in sys.argv:
        middle = sys.argv.index("--")
        run(pathlib.Path(sys.argv[2]), sys.argv[3:middle], sys.argv[middle + 1:])
        return 0
    if len(sys.argv) == 4 and sys.argv[1] == "compare":
        return 1 if compare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])) else 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
