#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""span_crash.py - a node of a job on two nodes loses power while the job stands at a named point, and comes back.

    span_crash.py --build BUILD [--all] [--only TEXT,...] [--lease S] [--jobs N] [--out FOLDER]

A row is a process, a failpoint of docs/protocols/commit.md at which it stops (TANDEM_FAILPOINT, runtime/failpoint.h),
and the node that then loses power: that of the process, or the other one.  The node's daemon is started again at once,
or after the lease of the node.  The job, which is started on a third node, must resume its last checkpoint by itself,
and each of its steps must have the numbers of an undisturbed job, and its model the same bytes.  The versions of the
weights must grow, also over the restart.

Each row is a trial in network namespaces of its own (network.py), with encrypted connections.  Without --all and --only
it tries the rows of CHOSEN.  Exit status: 1 if a trial fails, 77 if namespaces are not allowed here.
"""
import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import cluster
import events
import fault_soak
import network

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "job"))
import support  # noqa: E402

STEPS = 4
WARMUP_STEPS = 15  # So many that rewards are not all zero.
WORDS = [f"rollout.num_rollout={STEPS}", f"rollout.warmup_steps={WARMUP_STEPS}", "trainer.warmup_lr=1e-2",
         "trainer.warmup_lr_warmup_iters=2", "trainer.replicas=2", "job.save_interval=1",
         "update.update_weight_buffer_size=256 KiB"]
JOB_NODE = "n3"  # The node without GPUs, on which the job is started.
# Times for a busy machine.
COMING_SECONDS = 240  # Time until the process stands at the failpoint.
END_SECONDS = 300  # Time until the end of the job, after that.
TRIAL_SECONDS = 600
SLOW = 2  # Factor for the time of the undisturbed job.
MODES = ("copy", "bucket", "donate", "names")

OWN = "own"  # The node of the process that stands at the failpoint loses power.
OTHER = "other"  # The other one of the two nodes does.

REQUESTS = 4  # Requests of weight versions in an update that a daemon of two ranks gets: their votes and reports.
# How often a process passes a failpoint until the job has a checkpoint: up to its third update, or its second step.
UPDATE = 3
CHUNKS = {"copy": 2, "bucket": 2, "donate": 1, "names": 2}  # Times in each update that it passes one of PER_CHUNK.
PER_CHUNK = ("trainer.write", "trainer.written", "trainer.gather", "trainer.announce", "trainer.announced",
             "engine.stage", "engine.staged")
PASSES = {"trainer.step": WARMUP_STEPS + 2, "trainer.save": 2, "trainer.saved": 2, "trainer.pause": 3,
          "trainer.resume": 3, "engine.pause": 2, "engine.resume": 6, "engine.generate": 3}
DRIVER_STEPS = ("source.begin", "source.begun", "source.decide", "source.decided", "source.finished")
TRAINER_STEPS = ("trainer.acquire_bucket", "trainer.write", "trainer.written", "trainer.gather",
                 "trainer.release_bucket")
TELLER_STEPS = ("trainer.announce", "trainer.announced")  # Of the first rank of a gather group.
ENGINE_STEPS = ("engine.acquire_shadow", "engine.stage", "engine.staged", "engine.vote", "engine.voted", "engine.flip",
                "engine.flipped", "engine.reported")
TRAINER_PHASES = ("trainer.resume", "trainer.step", "trainer.save", "trainer.saved", "trainer.pause")
ENGINE_PHASES = ("engine.resume", "engine.generate", "engine.pause")
DAEMON_STEPS = ("daemon.version_request", "daemon.version_stored")
# What processes pass in the update that is repeated after an engine was lost in it.
AGAIN_STEPS = (("trainer/0", "trainer.find_held"), ("trainer/0", "trainer.skip"),
               ("engine/0/1", "engine.resume_update"))
# What they pass when that engine comes back.  It can copy weights of an engine on its node only; so each node has two.
JOIN_STEPS = (("engine/2/0", "engine.export_weights"), ("engine/3/0", "engine.pull"), ("engine/3/0", "engine.pulled"),
              ("engine/3/0", "engine.joined"))
# What the driver passes after the store has lost all records in an update.
RESTORE_STEPS = (("driver", "source.restore"), ("driver", "source.restored"))
FOUR_ENGINES = ("engine.num_engines=4", "engine.rollout_num_gpus_per_engine=1")


@dataclasses.dataclass
class Row:
    passer: str
    step: str
    victim: str
    mode: str
    late: bool  # The node comes back after its lease, not at once.
    killed: str = ""  # A rank of an engine that is killed before, in an update.
    flushed: bool = False  # The store loses all of its records before, in an update.
    words: tuple = ()  # Settings of the job.

    @property
    def name(self):
        return f"{self.passer} {self.step} {self.victim}"

    def passes(self):
        if self.killed or self.flushed:
            return 1
        if self.passer == "daemon":
            return (UPDATE - 1) * REQUESTS + 1
        if self.step in PER_CHUNK:
            return (UPDATE - 1) * self.chunks() + 1
        return PASSES.get(self.step, UPDATE)

    def chunks(self):
        """Returns how often a process passes one of PER_CHUNK in an update: a rank of four engines has twice the
        weights."""
        return CHUNKS[self.mode] * (2 if self.words == FOUR_ENGINES else 1)

    def failpoints(self, folder):
        """Returns TANDEM_FAILPOINT for the row."""
        first = ""
        if self.killed:
            first = f"{self.killed} engine.staged {(UPDATE - 1) * self.chunks() + 1} kill {folder / 'killed'};"
        if self.flushed:
            first = f"driver source.decide {UPDATE} stop {folder / 'flushed'};"
        return f"{first}{self.passer} {self.step} {self.passes()} stop {folder / 'stopped'}"


def rows():
    """Returns all rows.  Modes and whether the node comes back late take turns."""
    points = [("driver", step, victim) for step in DRIVER_STEPS for victim in ("n1", "n2")]
    points += [("trainer/0", step, victim) for step in TRAINER_STEPS + TELLER_STEPS + TRAINER_PHASES
               for victim in (OWN, OTHER)]
    points += [("trainer/3", step, OWN) for step in TRAINER_STEPS]
    points += [("engine/1/1", step, victim) for step in ENGINE_STEPS + ENGINE_PHASES for victim in (OWN, OTHER)]
    points += [("daemon", step, victim) for step in DAEMON_STEPS for victim in ("n1", "n2")]
    found = [Row(*point, mode=MODES[i % len(MODES)], late=i // 2 % 2 == 1) for i, point in enumerate(points)]
    for row in found:
        if row.step in ("trainer.acquire_bucket", "trainer.release_bucket") and row.mode == "donate":
            row.mode = "copy"  # Donate mode has no buckets.
    for killed, steps, words in (("engine/1/1", AGAIN_STEPS, ()), ("engine/3/0", JOIN_STEPS, FOUR_ENGINES)):
        found += [Row(*step, victim, mode=("copy", "bucket")[i % 2], late=victim == OTHER, killed=killed, words=words)
                  for i, step in enumerate(steps) for victim in (OWN, OTHER)]
    found += [Row(*step, victim, mode="copy", late=victim == "n2", flushed=True)
              for step in RESTORE_STEPS for victim in ("n1", "n2")]
    return found


# What ctest tries: a point of each kind of process, in each part of an update, and in phases outside of updates.
CHOSEN = ("driver source.decide n1", "trainer/0 trainer.write other", "trainer/0 trainer.save own",
          "engine/1/1 engine.staged own", "engine/1/1 engine.flip other", "engine/1/1 engine.generate own",
          "daemon daemon.version_stored n2", "engine/3/0 engine.joined other")


# ---- one trial ------------------------------------------------------------------------------


class SpanCluster(cluster.Cluster):
    """Two nodes that together have the GPUs of the job, and one on which it is started."""

    def __init__(self, build, directory, out, lease_s, failpoints):
        super().__init__(build, directory, out, lease_s)
        self.gpus = {"n1": 2, "n2": 2, JOB_NODE: 0}
        self.gpu_bytes = 64 << 20
        self.failpoints = failpoints

    def start(self):
        self.master.start()
        for node in self.nodes:
            self.start_daemon(node)

    def environment(self, node):
        return {**super().environment(node), "TANDEM_FAILPOINT": self.failpoints, "OPENBLAS_NUM_THREADS": "1"}

    def words(self, *words):
        return self.network.machines[JOB_NODE].words(self.build / "tandem", *words)

    def tandem(self, *words):
        """Runs a command of Tandem on the job's node and returns what it prints."""
        done = subprocess.run(self.words(*words), capture_output=True, text=True, env=self.environment(JOB_NODE),
                              timeout=60, check=True)
        return done.stdout

    def node_of(self, pid):
        return next(node for node in self.nodes if pid in self.network.machines[node].processes())


class Trial:
    def __init__(self, row, options, directory):
        self.row = row
        self.folder = directory
        self.out = options.out
        self.cluster = SpanCluster(options.build, directory, options.out, options.lease, row.failpoints(directory))
        self.process = None
        self.steps_before = 0  # Steps that the job had made when its node lost power.

    def start_job(self):
        library = self.cluster.build / "examples" / "colocated_rl" / "colocated_rl.so"
        words = self.cluster.words("run", support.JOB, f"job.library={library}", "--json", "--out", self.folder / "out",
                                   *WORDS, *self.row.words, f"update.mode={self.row.mode}")
        with (self.out / "job.jsonl").open("w") as lines, (self.out / "job.stderr").open("w") as errors:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=lines, stderr=errors,
                                            env=self.cluster.environment(JOB_NODE), cwd=self.folder)

    def lines(self):
        return (self.out / "job.jsonl").read_text(encoding="utf-8")

    def wait_until_stopped(self, name):
        """Returns the process that has stopped at the failpoint with a file of this name."""
        path = self.folder / name
        deadline = time.monotonic() + COMING_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            if stopped := cluster.stopped_process(path):
                return stopped
            time.sleep(0.005)
        raise cluster.Failure(f"{self.row.passer} did not come to {self.row.step}; the job's status: "
                              f"{self.process.poll()}")

    def victim(self, node):
        """Returns the node that loses power, if the process at the failpoint is on this node."""
        if self.row.victim in ("n1", "n2"):
            return self.row.victim
        return node if self.row.victim == OWN else {"n1": "n2", "n2": "n1"}[node]

    def lose_power(self, victim, stopped):
        """Kills all processes of a node at once, lets the stopped one go on, and starts the node again."""
        self.steps_before = len(support.steps_of(self.lines()))
        self.cluster.network.isolate(victim)
        self.cluster.stop_node(victim)
        self.cluster.kill_node(victim)
        self.cluster.proceed([stopped])  # It has ended if its node has lost power.
        if self.row.late:
            time.sleep(self.cluster.lease_s + events.GRACE_SECONDS + 1)
        self.cluster.network.heal()
        self.cluster.start_again(victim)

    def run(self, expected):
        """Returns what is wrong after the fault, as a list of texts."""
        self.cluster.start()
        self.start_job()
        if self.row.flushed:
            driver = self.wait_until_stopped("flushed")
            self.cluster.master.ask("FLUSHALL")
            self.cluster.proceed([driver])
        stopped = self.wait_until_stopped("stopped")
        self.lose_power(self.victim(self.cluster.node_of(stopped)), stopped)
        try:
            status = self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            return [f"the job had no end within {END_SECONDS} s"]
        if status != 0:
            return [f"the job ended with {status}: {(self.out / 'job.stderr').read_text(encoding='utf-8')[-1000:]}"]
        return self.judge(expected) + fault_soak.left(self.cluster)

    def judge(self, expected):
        lines = self.lines()
        steps = support.steps_of(lines)
        notes = support.notes_of(lines)
        wrong = [f"step {step['step']} has other numbers" for step in steps
                 if json.loads(json.dumps(support.numbers_of(step))) != expected["steps"][step["step"] - 1]]
        if steps[-1]["step"] != STEPS or self.steps_before == 0:
            wrong.append(f"{self.steps_before} steps before the fault; the last one is {steps[-1]['step']}")
        if not any(note.startswith("restart ") for note in notes):
            wrong.append("the job did not restart")
        if not any(note.startswith("resuming ") for note in notes):
            wrong.append("the job did not resume its checkpoint")
        if (reward := reward_of(notes)) != expected["reward"]:
            wrong.append(f"{reward}, not {expected['reward']}")
        if model_of(self.folder / "out") != expected["model"]:
            wrong.append("the model has other bytes")
        versions = versions_of(self.folder / "out")
        if len(versions) < STEPS + 1 or any(later <= earlier for earlier, later in zip(versions, versions[1:])):
            wrong.append(f"the versions of the updates are {versions}")
        return wrong

    def restarts(self):
        return [note for note in support.notes_of(self.lines()) if note.startswith("restart ")]


def reward_of(notes):
    """Returns the rewards of the unseen prompts before and after training, as the job prints them."""
    return next((note.split("  ")[0] for note in notes if note.startswith("reward ")), "no reward")


def versions_of(out):
    """Returns the versions with which the engines went on after updates, those before the restart included."""
    events = json.loads((out / "trace.json").read_text(encoding="utf-8"))
    return [int(event["args"]["version"]) for event in events if event["name"] == "RESUME_ENGINE"]


def model_of(out):
    return hashlib.sha256((out / "hf" / "model.safetensors").read_bytes()).hexdigest()


def try_row(options):
    """Makes the trial of one row inside of namespaces; prints the verdict."""
    directory = network.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    row = next(row for row in rows() if row.name == options.row)
    expected = json.loads(options.expected.read_text(encoding="ascii"))[" ".join(row.words)]
    trial = Trial(row, options, directory)
    begun = time.monotonic()
    verdict = {"row": row.name, "mode": row.mode, "late": row.late}
    try:
        verdict["wrong"] = trial.run(expected)
        verdict["restarts"] = trial.restarts()
        verdict["steps_before"] = trial.steps_before
    except cluster.Failure as failure:
        verdict["wrong"] = [f"no trial: {failure}"]
    finally:
        trial.cluster.end()
    verdict["seconds"] = round(time.monotonic() - begun, 1)
    (options.out / "verdict.json").write_text(json.dumps(verdict, indent=1) + "\n", encoding="ascii")
    return 1 if verdict["wrong"] else 0


# ---- all of them ----------------------------------------------------------------------------


def undisturbed(build, words):
    """Returns what the same job on one node has: the numbers of each step, the rewards, and a hash of the model."""
    sandbox = support.Sandbox(build, SLOW)
    try:
        code, out, err = sandbox.run("--json", "--out", "out", *WORDS, *words)
        if code != 0:
            raise cluster.Failure(f"the undisturbed job ended with {code}: {err}")
        return {"steps": [support.numbers_of(step) for step in support.steps_of(out)],
                "reward": reward_of(support.notes_of(out)), "model": model_of(sandbox.path / "out")}
    finally:
        sandbox.destroy()


def start_trial(options, expected, row):
    """Makes the trial of a row in a process of its own, and returns its verdict."""
    out = options.out / row.name.replace("/", "-").replace(" ", "_")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    command = [sys.executable, __file__, "--build", str(options.build), "--row", row.name, "--expected", str(expected),
               "--lease", str(options.lease), "--out", str(out)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TRIAL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"row": row.name, "wrong": [f"no end after {TRIAL_SECONDS} s"]}
    if not (out / "verdict.json").exists():
        return {"row": row.name, "wrong": [f"no verdict: {done.stderr.strip()[-2000:]}"]}
    verdict = json.loads((out / "verdict.json").read_text(encoding="ascii"))
    if not verdict["wrong"]:
        shutil.rmtree(out)
    return verdict


def line_of(verdict):
    if verdict["wrong"]:
        return f"FAILED  {verdict['row']}: {'; '.join(verdict['wrong'])}"
    back = "after its lease" if verdict["late"] else "at once"
    return (f"ok      {verdict['row']} ({verdict['mode']}, back {back}, after step {verdict['steps_before']}, "
            f"{len(verdict['restarts'])} restarts, {verdict['seconds']} s)")


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--all", action="store_true", help="try all rows, which takes 15 minutes")
    parser.add_argument("--only", default="", metavar="TEXT,...", help="rows whose names contain one of these texts")
    parser.add_argument("--lease", type=float, default=5, help="of the nodes, in seconds (5)")
    parser.add_argument("--jobs", type=int, default=2, help="trials that run at once (2)")
    parser.add_argument("--out", type=pathlib.Path, help="for logs of trials that fail (BUILD/../span-crash)")
    parser.add_argument("--row", help=argparse.SUPPRESS)  # Set in the processes of the trials, as is --expected.
    parser.add_argument("--expected", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    options.build = options.build.absolute()
    options.out = (options.out or options.build.parent / "span-crash").absolute()
    texts = [text for text in options.only.split(",") if text]
    options.rows = [row for row in rows() if options.all or any(text in row.name for text in texts) or
                    (not texts and row.name in CHOSEN)]
    if not options.rows:
        parser.error(f"no row's name contains {options.only}; the rows are {', '.join(row.name for row in rows())}")
    return options


def main():
    options = options_of(sys.argv[1:])
    if options.row:
        return try_row(options)
    if reason := network.why_not():
        print(f"skipped: {reason}")
        return 77
    begun = time.monotonic()
    verdicts = []
    with tempfile.NamedTemporaryFile("w", suffix=".json") as expected:
        json.dump({" ".join(words): undisturbed(options.build, words) for words in {row.words for row in options.rows}},
                  expected)
        expected.flush()
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            trials = [pool.submit(start_trial, options, expected.name, row) for row in options.rows]
            for trial in concurrent.futures.as_completed(trials):
                verdicts.append(trial.result())
                print(line_of(verdicts[-1]), flush=True)
    wrong = sum(bool(verdict["wrong"]) for verdict in verdicts)
    print(f"{len(verdicts)} trials, {wrong} wrong, {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
