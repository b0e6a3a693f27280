#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""crash_test.py - kills a process at a failpoint of a weight update and checks which weights are served.

    crash_test.py BUILD_DIR [SLOW [ROW …]]

A row of the table is a process and a failpoint of docs/protocols/commit.md.  The process kills itself
there (TANDEM_FAILPOINT, runtime/failpoint.h), each time in another update and another update mode.
In other rows the store loses all of its data while the process is stopped there.
The engines of the smallest job log which weights they generate with, after checking every byte.

TANDEM_CRASHES sets how often each row happens (5), TANDEM_SEED sets another seed (20261123), TANDEM_CRASH_JOBS
how many happen at once (2), TANDEM_CRASH_REPORT names a folder for report.txt and report.json.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import socket
import statistics
import sys
import time

from support import Failure, Sandbox, finish, notes_of, require, shared_memory, steps_of

SEED = int(os.environ.get("TANDEM_SEED", "20261123"))
CRASHES = int(os.environ.get("TANDEM_CRASHES", "5"))
JOBS = int(os.environ.get("TANDEM_CRASH_JOBS", "2"))
REPORT = os.environ.get("TANDEM_CRASH_REPORT")
MODES = ["donate", "copy", "names", "bucket"]
WITH_LAYOUTS = ["donate", "copy", "bucket"]  # In mode "names" layouts are not known, so that no engine can join.
STEPS = 6  # Reinforcement-learning steps, each followed by an update.
REFUSED = 2  # the last rank of each engine refuses the weights of this step, where drops are wanted
STAGED_S = 10  # Seconds within which all ranks of the engines stage a bucket.
RANKS = [f"engine/{engine}/{rank}" for engine in range(2) for rank in range(2)]
JOB = """
job: {name: tiny, seed: 5, save_interval: 3}
cluster: {num_gpus: 4, gpu_bytes: 32 MiB, cpus: 8}
trainer: {num_ranks: 4, step_timeout_ms: 60000}
engine: {num_engines: 2, rollout_num_gpus_per_engine: 2}
rollout: {num_rollout: 6, rollout_batch_size: 4, n_samples_per_prompt: 2, rollout_max_response_len: 4,
          warmup_steps: 1, warmup_batch_size: 4}
update: {update_weight_buffer_size: 4 KiB, timeout_ms: 60000}
"""
DATA = "".join(f'{{"prompt": "p{i}", "answer": "{i}"}}\n' for i in range(4))

ENDS = "ends"  # The job fails; a resumed job continues.
RESTARTS = "restarts"  # The job names the process, and continues from its last checkpoint by itself.
GOES_ON = "goes on"  # The job completes without the process or with a new one.
# What happens to the job when a process of this kind is killed or stopped.
COMES_OF = {"driver": ENDS, "trainer": RESTARTS, "engine": GOES_ON, "daemon": RESTARTS, "store": GOES_ON,
            "data": GOES_ON}

BUCKETS = {"donate": 1, "copy": 4, "names": 3, "bucket": 4}  # In copy mode the largest tensor is split over two buckets.
# Half a bucket is sent at a time. Sizes differ, so that the test can tell chunks apart.
WAYS = {mode: [f"update.mode={mode}"] + (["update.update_weight_buffer_size=8 KiB"] if mode in ("copy", "bucket") else [])
        for mode in MODES}
DRIVER_STEPS = ["source.begin", "source.begun", "source.decide", "source.decided", "source.finished"]
TRAINER_STEPS = ["trainer.acquire_bucket", "trainer.write", "trainer.written", "trainer.gather",
                 "trainer.release_bucket"]
TELLER_STEPS = ["trainer.announce", "trainer.announced"]
ENGINE_STEPS = ["engine.acquire_shadow", "engine.stage", "engine.staged", "engine.vote", "engine.voted", "engine.flip",
                "engine.flipped", "engine.reported", "engine.drop"]
AGAIN_STEPS = ["trainer.find_held", "trainer.skip"]
JOINER_STEPS = ["engine.pull", "engine.pulled", "engine.joined"]
DAEMON_STEPS = ["daemon.version_request", "daemon.version_stored"]
PER_BUCKET = {"trainer.write", "trainer.written", "trainer.gather", "trainer.announce", "trainer.announced",
              "engine.stage", "engine.staged"}
ONLY_BUCKETS = {"trainer.acquire_bucket", "trainer.release_bucket"}  # Donate mode has no buckets.
REQUESTS = 10  # Requests that the daemon forwards in an update: begin, four votes, decide, four reports.
REQUESTS_BEFORE = 1  # The job asks once for the committed version when it starts.

KILLED = "killed"
STOPPED = "stopped"
HELD = "held"  # The store has no failpoints: it is killed while another process is stopped at one.
LOST = "lost"  # The same, but the store stays alive and loses all of its data.
JOINING = "joining"  # Killed while an engine that was killed before is restarted.
AGAIN = "killed again"  # Killed in the update that is repeated because engine 1 was lost.
# Killed in mode bucket, when every engine rank has this bucket and no version: {how: bucket, from 1}.
TORN = {f"killed after bucket {bucket}": bucket for bucket in range(1, BUCKETS["bucket"] + 1)}
# The driver alone sends the weights of the last checkpoint when the job is resumed; a trainer rank's death restarts the
# job from it; so does the daemon's; the update goes on when the store is back.
TORN_VICTIMS = ["driver", "trainer/0", "trainer/1", "trainer/3", "daemon", "store"]

# (process that is killed, process and failpoint that trigger it, how)
ROWS = ([("driver", "driver", step, KILLED) for step in DRIVER_STEPS] +
        [("trainer/0", "trainer/0", step, KILLED) for step in TRAINER_STEPS + TELLER_STEPS] +
        [("trainer/3", "trainer/3", step, KILLED) for step in TRAINER_STEPS] +
        [(who, who, step, KILLED) for who in ("engine/0/0", "engine/1/1") for step in ENGINE_STEPS] +
        [("engine/1/0", "engine/1/0", step, STOPPED)
         for step in ("engine.stage", "engine.staged", "engine.voted", "engine.flipped")] +
        [("engine/0/1", "engine/0/1", "engine.export_weights", JOINING)] +
        [("engine/1/1", "engine/1/1", step, JOINING) for step in JOINER_STEPS] +
        [(who, who, step, AGAIN) for who in ("trainer/0", "trainer/3") for step in AGAIN_STEPS] +
        [("engine/0/1", "engine/0/1", "engine.resume_update", AGAIN)] +
        [("daemon", "daemon", step, KILLED) for step in DAEMON_STEPS] +
        [(who, "engine/1/1", "engine.staged", how) for who in TORN_VICTIMS for how in TORN] +
        [("store", "driver", step, HELD) for step in ("source.begin", "source.decide")] +
        [("store", "daemon", step, HELD) for step in DAEMON_STEPS] +
        [("data", "driver", step, LOST) for step in DRIVER_STEPS] +
        [("data", "engine/1/1", step, LOST)
         for step in ("engine.vote", "engine.flip", "engine.reported", "engine.drop")] +
        [("data", "daemon", step, LOST) for step in DAEMON_STEPS])


class Row:
    """One crash: the process, the failpoint and the update."""

    def __init__(self, row, number):
        self.victim, self.passer, self.step, self.how = row
        self.kind = self.victim.split("/")[0]
        whose = f"{self.passer}'s " if self.stops_the_passer() else ""
        self.name = f"{self.victim} {self.how} at {whose}{self.step}"
        chance = random.Random(f"{SEED} {self.name} {number}")
        self.mode = self.choose_mode(number)
        per_update = BUCKETS[self.mode] if self.step in PER_BUCKET else 1
        per_update = REQUESTS if self.passer == "daemon" else per_update
        self.update = 4 + chance.randrange(3)  # No checkpoint to resume from exists before.
        self.count = (self.update - 1) * per_update + 1 + chance.randrange(per_update)
        self.count += REQUESTS_BEFORE if self.passer == "daemon" else 0
        if self.how in TORN:
            self.count = (self.update - 1) * per_update + TORN[self.how]
        if self.step == "engine.drop" or self.how in (JOINING, AGAIN):
            self.count = 1
        # At this point some process has part of the update.
        self.first = ((self.update - 1) * BUCKETS["copy"] + 2 + chance.randrange(BUCKETS["copy"] - 1), "engine.staged")
        if self.mode == "donate":
            self.first = (self.update, "engine.vote")
        self.number = number

    def stops_the_passer(self):
        """Tells whether one process is stopped at the failpoint while something happens to another one."""
        return self.how in (HELD, LOST) or self.how in TORN

    def repeats(self):
        """How often this row happens: once when all engines are torn, unless a number was asked for."""
        return min(CRASHES, 1) if self.how in TORN and "TANDEM_CRASHES" not in os.environ else CRASHES

    def choose_mode(self, number):
        if self.how in TORN:
            return "bucket"
        if self.step == "engine.drop":
            return "names"  # In this mode an engine can refuse weights.
        if self.how in (JOINING, AGAIN):
            return WITH_LAYOUTS[number % len(WITH_LAYOUTS)]
        modes = MODES[1:] if self.step in ONLY_BUCKETS else MODES
        return modes[number % len(modes)]

    def settings(self):
        refuse = [f"engine.refuse_step={REFUSED}"] if self.step == "engine.drop" else []
        stale = ["trainer.allow_stale=1"] if refuse else []  # The older weights complete the prompts of the next step.
        stall = ["update.stall_timeout_ms=1000"] if self.how == STOPPED else []
        endless = ["rollout.num_rollout=1000000"] if self.how == JOINING else []
        return WAYS[self.mode] + refuse + stale + stall + endless

    def breaks(self, folder, broken):
        """The value of TANDEM_FAILPOINT for this row."""
        action = "stop" if self.how == STOPPED or self.stops_the_passer() else "kill"
        first = f"engine/1/1 {self.first[1]} {self.first[0]} kill {folder / 'first'};" if self.how == AGAIN else ""
        if self.how in TORN:
            first = "".join(f"{rank} {self.step} {self.count} note {path};" for rank, path in self.notes(folder).items())
        return f"{first}{self.passer} {self.step} {self.count} {action} {broken}"

    def notes(self, folder):
        """Returns {engine rank: file that it creates when it has staged the bucket}, without the rank that stops."""
        return {rank: folder / f"staged-{rank.replace('/', '-')}" for rank in RANKS if rank != self.passer}

    def __str__(self):
        return f"{self.name}, {self.mode}, pass {self.count}"


# ---- what was served ------------------------------------------------------------------------


class Answer:
    def __init__(self, line):
        when, self.rank, step = line.split()
        self.when, self.step = float(when), int(step)


def answers_of(path):
    return [Answer(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def require_one_version_at_a_time(answers, begin, end=None):
    """Checks that no rank generates with older weights after any rank has generated with newer ones."""
    newest = -1
    for answer in answers:
        require(answer.step >= newest, f"{answer.rank} serves step {answer.step} after step {newest} was served")
        newest = answer.step
    if answers:
        require(answers[0].step <= begin, f"the first answers are of step {answers[0].step}, not {begin}")
    if end is not None:
        require(newest == end, f"the last answers are of step {newest}, not {end}")


def versions_of(out):
    """Returns {version: step of its weights} of the reported steps."""
    return {step["version"]: step["step"] for step in steps_of(out)}


def require_versions_grow(versions, after=0, restarts=0):
    """Checks that versions grow, and their steps, too, except that each restart repeats some steps."""
    last = (after, -1)
    for version, step in versions.items():
        goes_back = step <= last[1]
        restarts -= goes_back
        require(version > last[0] and (not goes_back or restarts >= 0),
                f"version {version} of step {step} after version {last[0]} of step {last[1]}")
        last = (version, step)


def turns_of(events, end):
    """Returns the events of a rank in order, split after each event of this name."""
    turns = [[]]
    for event in sorted(events, key=lambda event: event["ts"]):
        turns[-1].append(event)
        if event["name"] == end:
            turns.append([])
    return turns


def require_one_bucket_twice(path):
    """Checks that an update sends at most one bucket to a rank twice, however often it was repeated, and that a
    rank writes at most that bucket and the next one: the two halves of its bucket."""
    events = [event for event in json.loads(path.read_text(encoding="utf-8")) if event["ph"] == "X"]
    for process, end, begin, at_most in ((1, "step", "write bucket", 2), (2, "flip", "stage bucket", 1)):
        for thread in range(len(RANKS)):
            mine = [event for event in events if (event["pid"], event["tid"]) == (process, thread)]
            for turn in turns_of(mine, end):
                found = [(event["name"], event["args"].get("to"), event["args"]["bytes"] if process == 2 else 0)
                         for event in turn if event["name"].startswith(begin)]
                again = {what[0::2] for what in found if found.count(what) > 1}
                require(len(again) <= at_most and all(found.count(what) <= 2 for what in found),
                        f"in one update rank {thread} of process {process} has {found}")


def gap_s(answers, when):
    """Returns the seconds between the last completion before a moment and the first one after it."""
    before = [answer.when for answer in answers if answer.when <= when]
    after = [answer.when for answer in answers if answer.when > when]
    return after[0] - before[-1] if before and after else None


def gaps_of(answers):
    """Returns the seconds from one step's completions to the next one's without a failure."""
    turns = zip(answers, answers[1:])
    return [next_.when - answer.when for answer, next_ in turns if next_.step > answer.step]


# ---- one crash ------------------------------------------------------------------------------


class Crash:
    def __init__(self, row, build, slow):
        self.row = row
        self.sandbox = Sandbox(build, slow)
        self.slow = slow
        (self.sandbox.path / "job.yaml").write_text(JOB, encoding="utf-8")
        (self.sandbox.path / "data").write_text(DATA, encoding="utf-8")
        self.broken = self.sandbox.path / "broken"
        self.killed = None  # The process that the test itself has killed last.
        self.result = {"row": row.name, "number": row.number, "mode": row.mode, "pass": row.count}

    def start(self, *words, log="served", **environment):
        library = self.sandbox.build / "tests" / "tiny_job_library.so"
        data = [f"data.{name}={self.sandbox.path / 'data'}" for name in ("train", "unseen")]
        return self.sandbox.tandem("run", "job.yaml", "--json", f"job.library={library}",
                                 f"engine.served_log={self.sandbox.path / log}", *data, *words,
                                 environment=self.sandbox.environment(**environment))

    def answers(self, log="served"):
        return answers_of(self.sandbox.path / log)

    def run(self):
        row = self.row
        process = self.start("--out", "out", *row.settings(), TANDEM_FAILPOINT=row.breaks(self.sandbox.path, self.broken))
        told = self.strike(process)
        code, out, err = finish(process)
        out = told + out
        require(self.broken.exists(), f"nobody came to this step: exit code {code}: {err}")
        self.result["when"] = self.broken.stat().st_mtime
        versions = versions_of(out)
        require_versions_grow(versions, restarts=int(COMES_OF[row.kind] == RESTARTS))
        if COMES_OF[row.kind] == GOES_ON:
            self.check_went_on(code, err, versions)
        elif COMES_OF[row.kind] == RESTARTS:
            self.check_restarted(code, out, err, versions)
        else:
            self.check_ended(code, err, versions)
        self.require_clean()

    def strike(self, process):
        """Does what the process cannot do to itself; returns the job's output meanwhile."""
        if self.row.stops_the_passer():
            held = self.wait_until_stopped(process)
            if self.row.how == HELD:
                self.kill("tandem-store")
            elif self.row.how == LOST:
                self.lose_all_data()
            else:
                self.kill_the_source(process)
            # The death of the source may have ended it.
            with contextlib.suppress(ProcessLookupError):
                os.kill(held, signal.SIGCONT)
        return self.lose_an_engine(process) if self.row.how == JOINING else ""

    def wait_until_stopped(self, process):
        """Waits until the process has stopped; it writes its file before."""
        while process.poll() is None:
            said = self.broken.read_text(encoding="utf-8").split() if self.broken.exists() else []
            if len(said) == 3:
                pid = int(said[1])
                if "State:\tT" in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8"):
                    return pid
            time.sleep(0.002)
        raise Failure(f"nobody stopped at this step: {finish(process)}")

    def kill(self, name):
        victims = [pid for pid, found in self.sandbox.processes().items() if found == name]
        require(len(victims) == 1, f"processes {name}: {victims}")
        self.killed = victims[0]
        os.kill(victims[0], signal.SIGKILL)

    def kill_the_source(self, process):
        """Kills the row's process when the engine ranks that are not stopped have staged the bucket, too."""
        deadline = time.monotonic() + STAGED_S * self.slow
        notes = self.row.notes(self.sandbox.path) if self.row.how in TORN else {}
        while not all(path.exists() for path in notes.values()):
            missing = [rank for rank, path in notes.items() if not path.exists()]
            require(time.monotonic() < deadline, f"{missing} have not staged the bucket")
            time.sleep(0.002)
        names = {"daemon": "tandemd", "store": "tandem-store"}
        if self.row.kind == "driver":
            process.kill()
        else:
            self.kill(names.get(self.row.kind, self.row.victim))

    def lose_all_data(self):
        """Makes the store empty, like one that was restarted without its files."""
        (path,) = self.sandbox.tmp.rglob("redis/socket")
        with socket.socket(socket.AF_UNIX) as store:
            store.connect(str(path))
            store.sendall(b"FLUSHALL\r\n")
            require(store.recv(64) == b"+OK\r\n", "the store keeps its data")

    def lose_an_engine(self, process):
        """Kills the process each time that its successor reaches the same failpoint, for some steps."""
        told, steps, last = "", 0, None
        for line in process.stdout:
            told += line
            steps += json.loads(line).get("kind") == "step"
            if steps == 2 and last is None:
                self.kill("engine/1/0")
                last = float("inf")
            if last == float("inf") and self.broken.exists():
                last = steps + 20
            if steps == last:
                process.send_signal(signal.SIGINT)
        return told

    def check_went_on(self, code, err, versions):
        interrupted = self.row.how == JOINING
        require(code == (130 if interrupted else 0), f"exit code {code}: {err}")
        require(interrupted or list(versions.values())[-1] == STEPS, f"told: {versions}")
        answers = self.answers()
        require_one_version_at_a_time(answers, 0, None if interrupted else STEPS)
        if self.row.how == LOST:  # Another update follows and needs the store.
            require("the store lost the record of policy" in err, f"no word of what was lost: {err}")
        if self.row.kind == "engine" and self.row.mode != "names" and self.row.how != AGAIN:
            require_one_bucket_twice(self.sandbox.path / "out/trace.json")
        self.result["gap_s"] = gap_s(answers, self.result["when"])

    def check_restarted(self, code, out, err, versions):
        """Checks that the job has named the process, and went on from its last checkpoint with higher versions."""
        require(code == 0, f"exit code {code}: {err}")
        require(list(versions.values())[-1] == STEPS, f"told: {versions}")
        notes = notes_of(out)
        restarts = [note for note in notes if note.startswith("restart ")]
        resumed = [int(found[1]) for note in notes
                   if (found := re.match(r"resuming out/checkpoint after step (\d+); steps repeated: \d$", note))]
        require(len(restarts) == 1 and len(resumed) == 1, f"not one restart from the checkpoint: {notes}")
        self.require_named(restarts[0])
        answers = self.answers()
        backwards = [i for i in range(1, len(answers)) if answers[i].step < answers[i - 1].step]
        turn = backwards[0] if backwards else len(answers)
        require_one_version_at_a_time(answers[:turn], 0, None if backwards else STEPS)
        if backwards:
            require_one_version_at_a_time(answers[turn:], resumed[0], STEPS)
        self.result["gap_s"] = gap_s(answers, self.result["when"])

    def check_ended(self, code, err, versions):
        require(code == -signal.SIGKILL, f"exit code {code}: {err}")
        require_one_version_at_a_time(self.answers(), 0)
        self.require_clean()
        self.resume(versions)

    def require_named(self, err):
        pid = str(self.killed or self.broken.read_text(encoding="utf-8").split()[1])
        if self.row.kind in ("trainer", "engine"):
            wanted = rf"{self.row.victim} died: node \S+, pid {pid}, signal 9"
            require(re.search(wanted, err), f"does not match {wanted!r}: {err!r}")
        elif self.row.kind == "daemon":
            require(pid in err and "signal 9" in err, f"does not name pid {pid}: {err!r}")

    def resume(self, before):
        """Resumes from the last checkpoint: weights return to it, version numbers continue."""
        state = json.loads((self.sandbox.path / "out/checkpoint/state.json").read_text(encoding="utf-8"))
        begin = time.time()
        code, out, err = finish(self.start("--resume", "out", *WAYS[self.row.mode], log="resumed"))
        require(code == 0, f"resumed: exit code {code}: {err}")
        after = versions_of(out)
        answers = self.answers("resumed")
        require_versions_grow(after, max([self.row.update, state["version"], *before]))
        require_one_version_at_a_time(answers, state["step"], STEPS)
        self.result["resumed_s"] = answers[0].when - begin

    def require_clean(self):
        """Checks that nothing of this sandbox is left; /dev/shm is shared and checked at the end."""
        self.sandbox.shm = shared_memory()
        self.sandbox.require_clean()


def crash(row, number, build, slow):
    it = Crash(Row(row, number), build, slow)
    try:
        it.run()
    except Failure as failure:
        it.result["wrong"] = str(failure)
    finally:
        it.sandbox.destroy()
    return it.result


# ---- all of them ----------------------------------------------------------------------------


def clean_turns(build, slow):
    """Returns {mode: seconds between the completions of consecutive steps} of jobs without a failure."""
    turns = {}
    for mode in MODES:
        it = Crash(Row(ROWS[0], 0), build, slow)
        code, out, err = finish(it.start("--out", "out", *WAYS[mode]))
        require(code == 0, f"exit code {code}: {err}")
        require_versions_grow(versions_of(out))
        require_one_version_at_a_time(it.answers(), 0, STEPS)
        turns[mode] = statistics.median(gaps_of(it.answers()))
        it.sandbox.destroy()
    return turns


def ratio_of(result, turns):
    return result["gap_s"] / turns[result["mode"]] if result.get("gap_s") else None


def line_of(name, results, turns):
    wrong = [result for result in results if "wrong" in result]
    ratios = [ratio for result in results if (ratio := ratio_of(result, turns)) is not None]
    gaps = [result["gap_s"] * 1000 for result in results if result.get("gap_s")]
    resumed = [result["resumed_s"] for result in results if "resumed_s" in result]
    words = [f"{'FAILED' if wrong else 'ok':7} {name:42} {len(results) - len(wrong)} of {len(results)}"]
    if ratios:
        words.append(f"served again after {statistics.median(gaps):.0f} ms, at most {max(gaps):.0f}; "
                     f"{statistics.median(ratios):.1f} clean turns, at most {max(ratios):.1f}")
    if resumed:
        words.append(f"resumed in {statistics.median(resumed) * 1000:.0f} ms, at most {max(resumed) * 1000:.0f}")
    return "   ".join(words) + "".join(f"\n        {number_of(result)}: {result['wrong']}" for result in wrong)


def number_of(result):
    return f"{result['number']} ({result['mode']}, pass {result['pass']})"


def write_report(lines, results, turns):
    folder = pathlib.Path(REPORT)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    report = {"seed": SEED, "crashes": CRASHES, "clean_turn_s": turns,
              "rows": [dict(result, ratio=ratio_of(result, turns)) for result in results]}
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def main():
    build, slow = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    rows = [row for row in ROWS if not sys.argv[3:] or any(name in Row(row, 0).name for name in sys.argv[3:])]
    unknown = [name for name in sys.argv[3:] if not any(name in Row(row, 0).name for row in ROWS)]
    if unknown:
        sys.exit(f"no row's name contains {', '.join(unknown)}; the rows are " +
                 ", ".join(Row(row, 0).name for row in ROWS))
    begin = time.monotonic()
    shm = shared_memory()
    turns = clean_turns(build, slow)
    lines = [f"TANDEM_SEED={SEED} TANDEM_CRASHES={CRASHES}   a clean turn: " +
             ", ".join(f"{mode} {turn * 1000:.1f} ms" for mode, turn in turns.items())]
    print(lines[0], flush=True)
    results = []
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        futures = [[pool.submit(crash, row, number, build, slow) for number in range(Row(row, 0).repeats())]
                   for row in rows]
        for row, crashes in zip(rows, futures):
            found = [future.result() for future in crashes]
            results += found
            lines.append(line_of(Row(row, 0).name, found, turns))
            print(lines[-1], flush=True)
    left = sorted(shared_memory() - shm)
    wrong = sum("wrong" in result for result in results) + bool(left)
    lines.append(f"{len(results)} crashes, {wrong} wrong, {time.monotonic() - begin:.0f} s" +
                 (f", left in /dev/shm: {left}" if left else ""))
    print(lines[-1])
    if REPORT:
        write_report(lines, results, turns)
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as problem:
        sys.exit(f"FAILED  a job that nothing happens to: {problem}")
