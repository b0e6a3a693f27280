#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fault_trial.py - one trial of one fault: makes a cluster in network namespaces, breaks it, and judges the history."""
import argparse
import json
import pathlib
import shutil
import signal
import sys
import time

import cluster
import events
import history
import network
import workload

NOTICE_SECONDS = 12  # Callers hear of an unreachable node within this time.
START_SECONDS = 5  # Time that the start of an actor may take on a loaded machine.
LATER_SECONDS = 3  # Time in which effects of the fault may come after it.
AGAIN_SECONDS = 20  # Time after a fault until everything answers again, besides lease and grace.
DRAIN_SECONDS = 75  # Time for the drivers to end; their calls have a shorter limit.


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--event", choices=events.EVENTS, required=True)
    parser.add_argument("--trial", type=int, default=0, help="number of the trial, from 0 on")
    parser.add_argument("--lease", type=float, default=30, help="seconds, where tandemd has an option for it")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="for the verdict, the history and the logs")
    options = parser.parse_args(words)
    options.build = options.build.absolute()
    options.out = options.out.absolute()
    return options


def fault_record(one, event, trial, names, draining):
    """Returns the record of the fault, which tells the checker what was broken and what may suffer from it."""
    return {"event": event.name, "begun": trial.begun, "healed": trial.healed, "draining": draining,
            "drained": cluster.now(), "harmed": event.harmed, "apart": event.apart, "quiet": event.quiet,
            "takeover": event.takeover, "killed": one.killed, "replaced": trial.replaced,
            "continued": one.continued, "alive": names, "notice_s": NOTICE_SECONDS,
            "lease_s": one.lease_s, "grace_s": events.GRACE_SECONDS, "start_s": START_SECONDS}


def break_it(one, event, number):
    """Breaks the cluster, lets it go on, ends it in order, and returns the verdict."""
    one.start()
    trial = events.Trial(one, number)
    event.run(trial)
    time.sleep(LATER_SECONDS)
    one.wait_until_all_answer(one.lease_s + events.GRACE_SECONDS + AGAIN_SECONDS)
    time.sleep(1)
    names = one.names()
    draining = cluster.now()
    wrong = one.drain(DRAIN_SECONDS)
    with (one.history / "test.jsonl").open("w", encoding="ascii") as file:
        record = fault_record(one, event, trial, names, draining)
        file.write(json.dumps({"t": cluster.now(), "by": "test", "k": "fault", **record}) + "\n")
    verdict = history.judge(history.read(one.history))
    if wrong:
        verdict["broken"]["drivers_end"] = wrong
    verdict["risks"] = {rule: verdict["broken"].pop(rule) for rule in event.risks if rule in verdict["broken"]}
    return verdict


def main():
    options = options_of(sys.argv[1:])
    directory = network.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    event = events.EVENTS[options.event]
    verdict = {"broken": {}}
    one = None
    try:
        one = workload.Workload(options.build, directory, options.out, event.lease_s or options.lease,
                                event.wait_replicas)
        verdict = break_it(one, event, options.trial)
    except cluster.Failure as failure:
        verdict["no_trial"] = str(failure)
    finally:
        if one:
            verdict["lease_s"] = one.lease_s
            shutil.copytree(one.history, options.out / "history")
            one.end()
    (options.out / "verdict.json").write_text(json.dumps(verdict, indent=1) + "\n", encoding="ascii")
    return 1 if verdict["broken"] or "no_trial" in verdict else 0


if __name__ == "__main__":
    sys.exit(main())
