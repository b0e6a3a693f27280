#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""history.py - reads what the processes of a trial wrote, and judges whether the promises of docs/lifetimes.md held.

fault_workload_program.c writes calls, their ends, and what actors hold; fault_trial.py adds one record of the kind
"fault", which says what was broken, when, and which processes were there at the end.  All times are microseconds of
CLOCK_BOOTTIME.  `history.py FOLDER` judges the history in a folder.
"""
import collections
import json
import pathlib
import re
import sys

SECOND = 1000000
STALL = 2 * SECOND  # A call that takes longer counts as disturbed, even if it is answered.
CONTINUED = SECOND  # So long after it was continued, a process that was stopped may write before it is killed.
NODES = 3


class Call:
    """A call: who made it, to which role, when, its ends, and the processes that ran it."""

    def __init__(self, record):
        self.id = record["id"]
        self.by = record["by"]
        self.to = record["to"]
        self.begun = record["t"]
        self.ends = []
        self.runs = []

    def end(self):
        return self.ends[0]["t"] if self.ends else None

    def succeeded(self):
        return bool(self.ends) and self.ends[0]["status"] == 0

    def __str__(self):
        return f"the call {self.id} to {self.to}"


class Holder:
    """A process of an actor, and the time for which it is known to have held what it holds."""

    def __init__(self, record):
        self.by = record["by"]
        self.role = record["role"]
        self.actor = record["actor"]
        self.restarts = record["restarts"]
        self.node = record["node"]
        self.first = record["t"]
        self.times = [record["t"]]
        self.let_go = False
        self.things = [f"the actor {record['actor'][:8]} ({record['role']})"]
        if record["name"]:
            self.things.append(f"the name {record['name']}")
        self.things += [f"GPU {gpu} of {record['node']}" for gpu in record["gpus"]]
        if self.role.startswith(("slot", "pending")):
            self.things.append(f"the slot of {record['node']}")

    def last(self, continued):
        """Returns when it last held what it holds.  What a process wrote just after it was continued does not count
        if it was killed then."""
        times = self.times
        if continued is not None and continued < times[-1] <= continued + CONTINUED:
            times = [time for time in times if time <= continued] or times[:1]
        return times[-1]


class History:
    """The records of a trial, put together."""

    def __init__(self, records):
        self.calls = {}
        self.holders = {}
        self.processes = {}
        self.unknown_ends = []
        self.fault = None
        for record in sorted(records, key=lambda record: record["t"]):
            self.add(record)
        if self.fault is None:
            raise ValueError("the history has no record of the fault")
        self.alive = set(self.fault["alive"])
        self.harmed = set(self.fault["harmed"])

    def add(self, record):
        kind = record["k"]
        self.processes.setdefault(record["by"], record["t"])
        if kind == "call":
            self.calls[record["id"]] = Call(record)
        elif kind == "end":
            self.calls[record["id"]].ends.append(record)
        elif kind == "run":
            if record["id"] in self.calls:
                self.calls[record["id"]].runs.append(record)
        elif kind == "hold":
            if record["by"] in self.holders:
                self.holders[record["by"]].times.append(record["t"])
            else:
                self.holders[record["by"]] = Holder(record)
        elif kind == "let go":
            self.holders[record["by"]].let_go = True
        elif kind == "fault":
            self.fault = record

    def continued(self, by):
        """Returns when the test last continued a process that it had stopped; None if it did not."""
        return self.fault["continued"].get(by)

    def node_of_role(self, role, time):
        """Returns the node on which the actor of that role was seen last at that time; None if it was not."""
        found = [holder for holder in self.holders.values() if holder.role == role and holder.first <= time]
        return max(found, key=lambda holder: holder.first).node if found else None

    def pairs(self):
        """Returns {(caller's process, role): its calls in order} without the calls that wait for a place."""
        found = collections.defaultdict(list)
        for call in sorted(self.calls.values(), key=lambda call: call.begun):
            if not call.to.startswith("pending"):
                found[call.by, call.to].append(call)
        return found


def node_of(by):
    """Returns the node of a driver or caller, or the node whose driver first creates the actors of a role."""
    return "n" + by.split(":")[0].rsplit("-", 1)[1]


def creators_of(role):
    """Returns the nodes whose drivers may have created an actor of that role: two want the same name."""
    number = int(role.rsplit("-", 1)[1])
    return {f"n{number}", f"n{(number - 2) % NODES + 1}"} if role.startswith("named") else {f"n{number}"}


def seconds(microseconds):
    return microseconds / SECOND


# Rules.  Each is a function that yields what breaks it, as text.


def each_call_ends_once(history):
    for call in history.calls.values():
        if len(call.ends) > 1:
            yield f"{call} has {len(call.ends)} ends"
        elif not call.ends and call.by in history.alive:
            waited = seconds(history.fault["drained"] - call.begun)
            yield f"{call} has no end after {waited:.1f} s"
        elif call.ends and call.ends[0]["status"] != 0 and not call.ends[0]["why"]:
            yield f"{call} was refused without a reason"


def each_call_runs_once(history):
    for call in history.calls.values():
        if len(call.runs) > 1:
            yield f"{call} ran {len(call.runs)} times"
        if call.succeeded() and call.ends[0]["answer"] not in [run["by"] for run in call.runs]:
            yield f"{call} was answered by {call.ends[0]['answer']}, which did not run it"


def nothing_is_held_twice(history):
    held = collections.defaultdict(list)
    for holder in history.holders.values():
        for thing in holder.things:
            held[thing].append((holder.first, holder.last(history.continued(holder.by)), holder.by))
    for thing, spans in held.items():
        spans.sort()
        for earlier, later in zip(spans, spans[1:]):
            if later[0] <= earlier[1]:
                both = seconds(min(earlier[1], later[1]) - later[0])
                yield f"{thing} is held by {earlier[2]} and {later[2]} for {both:.2f} s"


def no_old_process_answers(history):
    """No call is answered by an earlier process of the actor once a later one is there."""
    begins = collections.defaultdict(list)
    for holder in history.holders.values():
        begins[holder.actor].append(holder)
    for call in history.calls.values():
        old = history.holders.get(call.ends[0]["answer"]) if call.succeeded() else None
        for later in begins[old.actor] if old else []:
            if later.restarts > old.restarts and later.first < call.end():
                yield (f"{call} was answered by {old.by} {seconds(call.end() - later.first):.2f} s after {later.by} "
                       "had begun")


def no_call_waits_long(history):
    """A caller hears of an unreachable node within the limit, and waits longer only for an actor that starts."""
    fault = history.fault
    for call in history.calls.values():
        if call.to.startswith("pending") or not call.ends or call.by in fault["continued"]:
            continue
        in_flight = call.begun <= fault["begun"] <= call.end()
        limit = fault["notice_s"] + (0 if in_flight else fault["start_s"])
        waited = seconds(call.end() - call.begun)
        if waited > limit:
            word = "answered" if call.succeeded() else "refused"
            yield f"{call} was {word} after {waited:.1f} s, not {limit:g} s"


def refusals_name_the_node(history):
    """A call to a node that the caller's node cannot reach says so, and when that node will count as lost."""
    fault = history.fault
    refused = 0
    for call in history.calls.values():
        here, there = node_of(call.by), history.node_of_role(call.to, call.begun)
        if {here, there} != set(fault["apart"]) or not call.ends or call.succeeded() or \
                not fault["begun"] < call.end() < fault["draining"]:
            continue
        refused += 1
        why = call.ends[0]["why"]
        if not re.search(rf"node {there} has not answered node {here} for \d+(\.\d+)? s; it counts as lost when it "
                         rf"has not renewed its lease for {fault['lease_s']:g} s", why):
            yield f"{call} from {here} to {there} failed: {why}"
    if fault["apart"] and not refused:
        yield f"no call between {' and '.join(fault['apart'])} was refused"


def nobody_notices(history):
    """Calls are not affected at all by some faults, except those to actors that the test itself has killed."""
    if not history.fault["quiet"]:
        return
    for call in history.calls.values():
        if call.by in history.alive and call.ends and not call.succeeded() and \
                call.to not in history.fault["replaced"] and \
                history.fault["begun"] < call.end() < history.fault["draining"]:
            yield f"{call} failed: {call.ends[0]['what']}: {call.ends[0]['why']}"


def only_the_harmed_die(history):
    """Processes end only on nodes that were harmed, or if their creator's node was."""
    for by in history.processes:
        holder = history.holders.get(by)
        if by in history.alive or by in history.fault["killed"] or by == "test" or (holder and holder.let_go):
            continue
        if history.processes[by] > history.fault["draining"]:
            continue  # It began when everything was ended.
        if by.split(":")[0] in history.fault["replaced"] and history.processes[by] > history.fault["begun"]:
            continue  # Two creators may have replaced it at once; the younger actor ends.
        if holder:
            harmed = {holder.node, *creators_of(holder.role)} & history.harmed
            lasted = seconds(holder.times[-1] - history.fault["begun"])
        else:
            harmed = {node_of(by)} & history.harmed
            lasted = float("nan")
        if not harmed:
            yield f"{by} ended {lasted:.1f} s after the fault, which did not harm its node or its creator's"


def actors_answer_again(history):
    """All callers that are there reach their actors at the end; restartable ones of nodes that were not harmed
    within lease, grace, two seconds and the actor's start."""
    fault = history.fault
    limit = fault["lease_s"] + fault["grace_s"] + 2 + fault["start_s"]
    for (by, to), calls in history.pairs().items():
        if by not in history.alive:
            continue
        after, affected = recovery(calls, fault)
        if affected and after is None:
            yield f"{to} never answered {by} again"
        elif affected and fault["takeover"] and to.startswith("restart") and \
                not {node_of(by), node_of(to)} & history.harmed and after > limit:
            yield f"{to} answered {by} again after {after:.1f} s, not {limit:g} s"


RULES = (each_call_ends_once, each_call_runs_once, nothing_is_held_twice, no_old_process_answers, no_call_waits_long,
         refusals_name_the_node, nobody_notices, only_the_harmed_die, actors_answer_again)


# Measures.


def recovery(calls, fault):
    """Returns (seconds from the fault until the calls of a pair succeed for good, whether they were disturbed).

    The seconds are None if they do not."""
    ends = sorted((call for call in calls if call.ends), key=Call.end)
    open_calls = [call for call in calls if not call.ends]
    bad = [number for number, call in enumerate(ends) if call.end() > fault["begun"] and
           (not call.succeeded() or call.end() - call.begun > STALL) and call.end() < fault["draining"]]
    if not bad and not open_calls:
        return 0, False
    begin = bad[-1] if bad else 0
    last_open = max((call.begun for call in open_calls), default=0)
    for call in ends[begin:]:
        if call.succeeded() and call.end() > fault["begun"] and call.end() > last_open:
            return seconds(call.end() - fault["begun"]), True
    return None, True


def plain(text):
    """Returns a failure's text without the call and without what differs between trials: numbers and IDs."""
    text = re.split(r", in method work\b", text)[0]
    text = re.sub(r"\b[0-9a-f]{8,}\b", "ID", text)
    return re.sub(r"\d+([.:]\d+)*", "N", text)


def measures(history):
    """Returns what the table needs of callers on nodes that were not harmed: what they saw, when the calls that were in
    flight at the fault failed, and when the callers were served again."""
    fault = history.fault
    seen = collections.Counter()
    notices = []
    recoveries = {"restart": [], "other": []}
    apart = history.harmed if len(history.harmed) < NODES else ()
    for (by, to), calls in history.pairs().items():
        if by not in history.alive or node_of(by) in apart:
            continue
        failures = [call for call in calls if call.ends and not call.succeeded() and
                    fault["begun"] < call.end() < fault["draining"]]
        if failures and to not in fault["replaced"]:
            notices += [seconds(call.end() - fault["begun"]) for call in failures if call.begun <= fault["begun"]]
            for text in {f"{call.ends[0]['what']}: {plain(call.ends[0]['why'])}" for call in failures}:
                seen[text] += 1
        after, affected = recovery(calls, fault)
        if affected:
            recoveries["restart" if to.startswith("restart") else "other"].append(after)
    return {"seen": seen.most_common(6), "affected": len(notices), "notice_s": max(notices, default=None),
            **{f"recover_{kind}_s": longest(values) for kind, values in recoveries.items()},
            "calls": len(history.calls)}


def longest(values):
    """Returns the longest of times: None if there are none, "never" if one is None."""
    if None in values:
        return "never"
    return max(values, default=None)


def read(folder):
    """Returns all records in a folder.  A process that was killed may have left half a line at the end."""
    records = []
    for path in pathlib.Path(folder).glob("*.jsonl"):
        for line in path.read_text(encoding="utf-8").split("\n")[:-1]:
            records.append(json.loads(line))
    return records


def judge(records):
    """Returns {"broken": {rule: [text, …]}, "measures": …}."""
    history = History(records)
    broken = {rule.__name__: list(rule(history)) for rule in RULES}
    return {"broken": {rule: texts for rule, texts in broken.items() if texts}, "measures": measures(history)}


if __name__ == "__main__":
    verdict = judge(read(sys.argv[1]))
    print(json.dumps(verdict, indent=1))
    sys.exit(1 if verdict["broken"] else 0)
