#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fault_table.py - tries each fault several times and writes a table of what callers saw and how long it took.

Each trial is a process of its own (fault_trial.py) with namespaces of its own, so that several can run at once.  The
verdicts of all trials are appended to trials.jsonl in the output directory, and the table is written from all of
them: parts of the table can be run one after the other.  Exit status: 1 if a promise was broken, 77 if namespaces are
not allowed here.
"""
import argparse
import concurrent.futures
import datetime
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import events

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TRIAL_SECONDS = 600  # A trial that takes longer is ended.
SEEN_MAX = 3  # Number of failures that the table quotes for each fault.


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--trials", type=int, default=20, help="of each fault (20)")
    parser.add_argument("--only", default="", metavar="EVENT,…", help="faults that are tried: " + ", ".join(
        events.EVENTS))
    parser.add_argument("--part", default="1/1", metavar="I/N", help="part I of N of all trials")
    parser.add_argument("--jobs", type=int, default=1, help="trials that run at once (1)")
    parser.add_argument("--lease", type=float, default=30, help="of the nodes, in seconds (30)")
    parser.add_argument("--out", type=pathlib.Path, help="for verdicts, histories and logs (BUILD/../faults)")
    parser.add_argument("--table", type=pathlib.Path, help="the table (docs/measurements/faults-DATE.md)")
    parser.add_argument("--fresh", action="store_true", help="forget the verdicts of earlier runs")
    options = parser.parse_args(words)
    options.out = options.out or options.build.absolute().parent / "faults"
    options.table = options.table or ROOT / "docs" / "measurements" / f"faults-{datetime.date.today()}.md"
    options.only = [name for name in options.only.split(",") if name] or list(events.EVENTS)
    unknown = sorted(set(options.only) - set(events.EVENTS))
    if unknown:
        parser.error(f"no fault is named {', '.join(unknown)}; the faults are {', '.join(events.EVENTS)}")
    part, parts = (int(number) for number in options.part.split("/"))
    if not 1 <= part <= parts:
        parser.error(f"--part {options.part}: wanted 1/{parts} to {parts}/{parts}")
    every = [(name, number) for number in range(options.trials) for name in options.only]
    options.chosen = every[part - 1::parts]
    return options


def revision():
    said = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True,
                          check=False)
    return said.stdout.strip() or "unknown"


def try_once(options, name, number):
    """Runs one trial and returns its verdict; None if it was skipped."""
    out = options.out / f"{name}-{number}"
    begun = time.monotonic()
    command = [sys.executable, str(HERE / "fault_trial.py"), "--build", str(options.build), "--event", name, "--trial",
               str(number), "--lease", str(options.lease), "--out", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"event": name, "trial": number, "broken": {"trial_ends": [f"no end after {TRIAL_SECONDS} s"]}}
    if done.returncode == 77:
        print(done.stdout.strip())
        return None
    try:
        verdict = json.loads((out / "verdict.json").read_text(encoding="ascii"))
    except FileNotFoundError:
        verdict = {"broken": {}, "no_trial": done.stderr.strip()[-2000:]}
    if done.returncode == 0:
        shutil.rmtree(out)
    return {"event": name, "trial": number, "seconds": round(time.monotonic() - begun, 1), **verdict}


def word_of(verdict):
    """Returns one line about a trial."""
    if "no_trial" in verdict:
        return f"NOT TRIED: {verdict['no_trial'].splitlines()[-1] if verdict['no_trial'] else '?'}"
    broken = verdict["broken"]
    if not broken:
        measured = verdict["measures"]
        return f"ok, noticed {shown(measured['notice_s'])}, recovered {shown(measured['recover_restart_s'])}"
    rule, texts = next(iter(broken.items()))
    counts = ", ".join(f"{name} ({len(every)})" for name, every in broken.items())
    return f"BROKEN {counts}: {rule}: {texts[0]}"


def shown(value):
    return "-" if value is None else value if isinstance(value, str) else f"{value:.1f} s"


def spread(values):
    """Returns "median / maximum" of times, of which None means not affected and "never" is longer than any other."""
    times = [float("inf") if value == "never" else value for value in values if value is not None]
    if not times:
        return "-"
    return " / ".join("never" if value == float("inf") else f"{value:.1f}" for value in
                      (statistics.median_high(times), max(times)))


def row(event, verdicts):
    """Returns the row of a fault."""
    tried = [verdict for verdict in verdicts if "no_trial" not in verdict]
    passed = sum(not verdict["broken"] for verdict in tried)
    measured = [verdict["measures"] for verdict in tried if "measures" in verdict]
    pairs = {}
    for measure in measured:
        for text, count in measure["seen"]:
            pairs[text] = pairs.get(text, 0) + count
    seen = [text.replace("|", "/") for text in sorted(pairs, key=pairs.get, reverse=True)[:SEEN_MAX]]
    cells = [event.title, "; ".join(f"“{text}”" for text in seen) or "nothing",
             *(spread([measure[name] for measure in measured])
               for name in ("notice_s", "recover_restart_s", "recover_other_s")),
             f"{passed} of {len(tried)}"]
    return "| " + " | ".join(cells) + " |"


def broken_promises(verdicts):
    """Yields lines that list the rules that were broken, with one example each."""
    rules = {}
    for verdict in verdicts:
        for rule, texts in verdict["broken"].items():
            rules.setdefault(rule.replace("_", " "), []).append(texts[0])
        for rule, texts in verdict.get("risks", {}).items():
            rules.setdefault(rule.replace("_", " ") + " (a known risk)", []).append(texts[0])
    for rule, texts in sorted(rules.items()):
        yield f"  - {rule}, broken in {len(texts)} of {len(verdicts)} trials, such as: {texts[0]}"


def table(verdicts, text_of_run):
    """Returns the page."""
    lines = ["# Faults", "", *text_of_run, "",
             "| fault | what callers see | calls in flight fail after (s) | restartable actors answer after (s) | "
             "other actors answer after (s) | all promises kept |", "|---|---|---|---|---|---|"]
    by_event = {name: [verdict for verdict in verdicts if verdict["event"] == name] for name in events.EVENTS}
    for name, own in by_event.items():
        if own:
            lines.append(row(events.EVENTS[name], own))
    lines += ["", "Times are median and maximum over the trials, each of which counts its slowest caller; “-” means "
              "that no call failed, or that no actor was away."]
    bad = {name: list(broken_promises(own)) for name, own in by_event.items()}
    if any(bad.values()):
        lines += ["", "## Broken promises", ""]
    for name, texts in bad.items():
        if texts:
            lines += [f"- {events.EVENTS[name].title} (`{name}`):", *texts]
    not_tried = [verdict for verdict in verdicts if "no_trial" in verdict]
    if not_tried:
        lines += ["", "## Trials that could not be made", ""]
        lines += sorted({f"- `{verdict['event']}`: {verdict['no_trial'].strip().splitlines()[-1]}"
                         for verdict in not_tried})
    return "\n".join(lines) + "\n"


def main():
    options = options_of(sys.argv[1:])
    options.out.mkdir(parents=True, exist_ok=True)
    results = options.out / "trials.jsonl"
    if options.fresh:
        results.unlink(missing_ok=True)
    failed = False
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        trials = {pool.submit(try_once, options, name, number): (name, number) for name, number in options.chosen}
        for trial in concurrent.futures.as_completed(trials):
            verdict = trial.result()
            if verdict is None:
                pool.shutdown(cancel_futures=True)
                return 77
            failed = failed or bool(verdict["broken"]) or "no_trial" in verdict
            with results.open("a", encoding="ascii") as file:
                file.write(json.dumps(verdict) + "\n")
            print(f"{verdict['event']} {verdict['trial']}: {word_of(verdict)}", flush=True)
    verdicts = [json.loads(line) for line in results.read_text(encoding="ascii").splitlines()]
    leases = sorted({verdict["lease_s"] for verdict in verdicts if "lease_s" in verdict})
    text_of_run = [f"Made by `scripts/fault-table` with revision {revision()} on {datetime.date.today()}: "
                   f"{len(verdicts)} trials, lease {', '.join(f'{lease:g}' for lease in leases)} s. "
                   "[hacking.md](../hacking.md#faults) says what runs at the moment of each fault."]
    options.table.write_text(table(verdicts, text_of_run), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
