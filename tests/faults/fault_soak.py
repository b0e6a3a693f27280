#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fault_soak.py - random faults of the fault table on a running job: trainers on one node, an engine on each of two
others, and the program that runs the job on a fourth one.

After each fault the job has to go on, and both engines have to serve again.  It may restart its ranks only after a
fault on the trainers' node n1 (power-loss@n1), or if an engine was still lost when the fault began.  At the end its
steps must have the numbers of an undisturbed run, and nothing may be left.  Exit status: 1 if not, 77 if namespaces
are not allowed here.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import cluster
import events
import network

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "job"), str(ROOT / "bench" / "soak")]
import support  # noqa: E402
import watch  # noqa: E402

TRAINERS_NODE = "n1"
ENGINE_NODES = ("n2", "n3")
JOB_NODE = "n4"  # The node without GPUs on which the job is started.
FAULTS = ("process-killed", "daemon-killed", "daemon-stopped", "power-loss", "node-frozen", "link-cut", "one-way-cut",
          "pair-cut", "redis-cut", "delay-loss", "redis-stopped-5", "redis-stopped-15", "redis-stopped-25",
          "redis-restart", "redis-restart-empty", "snapshot", "failover", f"power-loss@{TRAINERS_NODE}",
          f"link-cut@{TRAINERS_NODE}")
WORDS = ["rollout.num_rollout=1000000", "rollout.warmup_steps=2"]
APART = ["engine.colocate=false", "cluster.num_gpus=8", "update.mode=copy"]
STEP_SECONDS = 60  # Besides lease and grace, the time after a fault until the job has made a step.
END_SECONDS = 120  # Time for the job to end after SIGINT.


def options_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--pause", type=float, nargs=2, default=(20, 60), metavar=("LEAST", "MOST"),
                        help="seconds between two faults (20 60)")
    parser.add_argument("--only", default=",".join(FAULTS), metavar="EVENT,…")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lease", type=float, default=30)
    parser.add_argument("--out", type=pathlib.Path, help="for the job's output and the logs (BUILD/../fault-soak)")
    options = parser.parse_args(words)
    options.build = options.build.absolute()
    options.out = (options.out or options.build.parent / "fault-soak").absolute()
    options.only = options.only.split(",")
    unknown = sorted(set(options.only) - set(FAULTS))
    if unknown:
        parser.error(f"no fault is named {', '.join(unknown)}; the faults are {', '.join(FAULTS)}")
    return options


class JobCluster(cluster.Cluster):
    """Three nodes with the job's GPUs, four for the trainers and two for each engine, and one for the job itself."""

    nodes = (TRAINERS_NODE, *ENGINE_NODES, JOB_NODE)

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.gpus = {TRAINERS_NODE: 4, "n2": 2, "n3": 2, JOB_NODE: 0}
        self.gpu_bytes = 64 << 20
        self.random = random.Random()

    def process_of(self, role):
        """Returns a process of an engine, whatever the role."""
        code = ["list", "actors", "--live", "--json"]
        actors = json.loads(self.tandem(*code))
        return self.random.choice([actor["pid"] for actor in actors if actor["name"].startswith("engine")])

    def tandem(self, *words):
        """Runs a command of Tandem on the job's node and returns what it prints."""
        done = subprocess.run(self.network.machines[JOB_NODE].words(self.build / "tandem", *words), capture_output=True,
                              text=True, env=self.environment(JOB_NODE), timeout=60, check=True)
        return done.stdout


class Job:
    """A job that is started on its node, and its lines.  It uses the cluster, or a private node without faults."""

    def __init__(self, one, out, in_cluster=True, more=()):
        program = one.build / "tandem"
        library = one.build / "examples" / "colocated_rl" / "colocated_rl.so"
        words = [program, "run", support.JOB, f"job.library={library}", "--json", "--out", out, *WORDS]
        environment = {**one.environment(JOB_NODE if in_cluster else None), "OPENBLAS_NUM_THREADS": "1"}
        if in_cluster:
            words += [*APART, *restarts_words(one), *more]
        self.name = out.name
        self.errors = (one.out / f"{out.name}.stderr").open("wb")
        self.process = subprocess.Popen(one.network.machines[JOB_NODE].words(*words), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, env=environment,
                                        cwd=one.directory)
        self.lines = one.out / f"{out.name}.jsonl"
        self.steps = {}  # Numbers of each step.
        self.repeated = []  # Steps that were made again with other numbers.
        self.notes = []
        self.lost = set()  # Numbers of the engines that are lost.
        self.restarts = 0
        self.last_step_at = time.monotonic()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with self.lines.open("w", encoding="utf-8") as lines:
            for line in self.process.stdout:
                lines.write(line)
                lines.flush()
                item = json.loads(line)
                if item.get("kind") == "step":
                    numbers = support.numbers_of(item)
                    if self.steps.setdefault(item["step"], numbers) != numbers:
                        self.repeated.append(item["step"])
                    self.last_step_at = time.monotonic()
                elif "note" in item:
                    self.note(item["note"])

    def note(self, text):
        """Takes in a line about the job's engines and restarts, or about something else."""
        self.notes.append(text)
        engine = re.match(r"engine (\d+) (lost|back)", text)
        if engine and engine[2] == "lost":
            self.lost.add(int(engine[1]))
        elif engine:
            self.lost.discard(int(engine[1]))
        elif re.match(r"restart \d+ of", text):
            self.restarts += 1
            self.lost.clear()

    def runs(self):
        return self.process.poll() is None

    def wait_for_step_after(self, moment, limit_s):
        """Waits until the job has made a step after that moment; returns whether it has."""
        deadline = time.monotonic() + limit_s
        while self.last_step_at <= moment and self.runs() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.last_step_at > moment

    def wait_for_engines(self, limit_s):
        """Waits until no engine is lost; returns the numbers of those that still are."""
        deadline = time.monotonic() + limit_s
        while self.lost and self.runs() and time.monotonic() < deadline:
            time.sleep(0.1)
        return sorted(self.lost)

    def interrupt(self):
        """Ends the job as Ctrl-C does, and returns its exit status."""
        if self.runs():
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def restarts_words(one):
    """Returns the setting of how often the job may resume itself, if this build knows it."""
    library = one.build / "examples" / "colocated_rl" / "colocated_rl.so"
    words = ["plan", str(support.JOB), *APART, "job.max_restarts=100", f"job.library={library}"]
    known = subprocess.run([str(one.build / "tandem"), *words], capture_output=True, check=False).returncode == 0
    return ["job.max_restarts=100"] if known else []


def break_one(one, job, name, number, rng):
    """Makes one fault and waits until the job has gone on with both engines.  Returns a record of it."""
    event, _, victim = name.partition("@")
    trial = events.Trial(one, number, victim=victim or rng.choice(ENGINE_NODES))
    begun = time.monotonic()
    step, restarts, lost_before = max(job.steps, default=-1), job.restarts, sorted(job.lost)
    limit_s = one.lease_s + events.GRACE_SECONDS + STEP_SECONDS
    events.EVENTS[event].run(trial)
    healed = time.monotonic()
    went_on = job.wait_for_step_after(healed, limit_s)
    stepped_at = job.last_step_at
    lost = job.wait_for_engines(limit_s)
    return {"event": name, "victim": trial.victim, "begun_s": round(begun, 1),
            "lasted_s": round(healed - begun, 1), "step_s": round(stepped_at - healed, 1) if went_on else None,
            "engines_s": round(time.monotonic() - healed, 1), "steps_meanwhile": max(job.steps, default=-1) - step,
            "restarts": job.restarts - restarts, "lost_before": lost_before, "lost": lost, "goes_on": went_on}


def verdict_of(record, job):
    """Returns what is wrong after a fault, if anything."""
    where = f"after {record['event']} on {record['victim']} the job"
    if not record["goes_on"]:
        return [f"{where} had " + ("no step" if job.runs() else f"an end with {job.process.returncode}")]
    if record["lost"]:
        return [f"{where} did not get engine {record['lost'][0]} back"]
    if record["restarts"] and record["victim"] != TRAINERS_NODE and not record["lost_before"]:
        return [f"{where} restarted its ranks"]
    return []


def disturb(one, options, job):
    """Makes faults until the time is over.  Returns what went wrong.  Restarts that should not have happened do not
    end it; a job that does not go on does."""
    rng = random.Random(options.seed)
    one.random = rng
    end = time.monotonic() + options.minutes * 60
    number = 0
    wrong = []
    with (options.out / "faults.jsonl").open("w", encoding="ascii") as log:
        while True:
            pause = rng.uniform(*options.pause)
            if time.monotonic() + pause > end:
                return wrong
            time.sleep(pause)
            if not job.runs():
                return [*wrong, f"the job ended by itself with {job.process.returncode}; {job.name}.stderr"]
            record = break_one(one, job, rng.choice(options.only), number, rng)
            number += 1
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(json.dumps(record), flush=True)
            wrong += verdict_of(record, job)
            if not record["goes_on"]:
                return wrong


def left(one):
    """Returns what is left 30 s after the end of the job: actors in the list, and processes of actors."""
    deadline = time.monotonic() + 30
    while True:
        found = [f"the actor {actor['name']} is left" for actor in json.loads(one.tandem("list", "actors", "--live",
                                                                                         "--json"))]
        for node in one.nodes:
            found += [f"the process {pid} ({cluster.comm_of(pid)}) is left on {node}"
                      for pid in one.network.machines[node].processes() if watch.role(pid, []) == "worker"]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def compare(one, disturbed):
    """Makes the same steps on a private node, where engines and trainers share GPUs, and returns what differs."""
    job = Job(one, one.out / "undisturbed", in_cluster=False)
    last = max(disturbed.steps, default=-1)
    while job.runs() and max(job.steps, default=-1) < last:
        if not job.wait_for_step_after(time.monotonic(), 120):
            break
    job.interrupt()
    wrong = [f"step {step}: {disturbed.steps[step]}, undisturbed {job.steps.get(step)}"
             for step in sorted(disturbed.steps) if disturbed.steps[step] != job.steps.get(step)]
    return wrong[:3] + [f"{len(wrong)} of {len(disturbed.steps)} steps differ"] if wrong else []


def main():
    options = options_of(sys.argv[1:])
    directory = network.enter()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    one = None
    wrong = []
    try:
        one = JobCluster(options.build, directory, options.out, options.lease)
        one.start()
        job = Job(one, options.out / "disturbed")
        if not job.wait_for_step_after(time.monotonic(), 120):
            raise cluster.Failure("the job does not make a step within 120 s; disturbed.stderr")
        wrong = disturb(one, options, job)
        status = job.interrupt()
        if not wrong and status not in (0, 130):
            wrong.append(f"the job ended with {status}")
        wrong += [f"step {step} was repeated with other numbers" for step in job.repeated]
        wrong += left(one)
        wrong += compare(one, job)
        print(f"{len(job.steps)} steps, {job.restarts} restarts, {len(job.notes)} notes")
    finally:
        if one:
            one.end()
    print("\n".join(wrong) or "the job went on after each fault, with the numbers of an undisturbed run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
