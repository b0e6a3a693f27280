#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scale_test.py - jobs whose engines on GPUs of their own are more or fewer than the trainer ranks have room for, and
jobs to which engines are added while they run, have the same results as a job whose engines share the trainers' GPUs.

The example computes a batch of 64, 32 or 16 prompts with the same rounding, so that one, two or four engines have
results that are equal to the last bit.
"""
import functools
import json
import os
import pathlib
import re
import signal
import sys
import threading
import time

import nodes_test
from nodes_test import WORDS, Cluster, by_step, require_same
from support import Sandbox, finish, main, notes_of, on_cuda, read_until, require, steps_of

GPUS = 6  # GPUs of each node: enough for the trainers and an engine, or for three engines.
STEPS = 12
LONG = f"rollout.num_rollout={STEPS}"
ENDLESS = "rollout.num_rollout=100000"


def engines_of(count):
    """Returns the settings of a job with four trainer ranks and this many engines of two ranks."""
    return [f"engine.num_engines={count}", f"cluster.num_gpus={4 + 2 * count}"]


@functools.cache
def shared(build):
    """Returns the results of each step of a longer job whose engines share the trainers' GPUs."""
    sandbox = Sandbox(build)
    code, out, err = sandbox.run("--json", "--out", "out", *WORDS, LONG)
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return by_step(out)


def scale(cluster, *words):
    """Runs `tandem job scale` and returns (exit code, stdout, stderr)."""
    environment = dict(cluster.environment, TANDEM_ADDRESS=cluster.address)
    return finish(cluster.sandbox.tandem("job", "scale", *words, environment=environment))


def scale_stopped(cluster, process, words):
    """Leaves a request while the process of the job is stopped, so that its next step finds the request."""
    process.send_signal(signal.SIGSTOP)
    code, out, err = scale(cluster, words, "--no-wait")
    process.send_signal(signal.SIGCONT)
    require(code == 0 and f"asked for {words.rpartition('=')[2]} engines" in out, f"exit code {code}: {out}{err}")


class Output(threading.Thread):
    """Reads what a job prints, from its first step on while the test does something else."""

    def __init__(self, process):
        super().__init__()
        self.process = process
        self.lines = [read_until(process, "step", 1)]
        self.start()

    def run(self):
        for line in self.process.stdout:
            self.lines.append(line)

    def wait_for_note(self, pattern, times=1):
        """Waits until that many notes begin with this pattern."""
        deadline = time.monotonic() + self.process.limit_s
        while sum(bool(re.match(pattern, note)) for note in notes_of("".join(self.lines))) < times:
            require(self.is_alive() and time.monotonic() < deadline, f"no note {pattern!r}: {self.lines[-20:]}")
            time.sleep(0.1)

    def interrupt(self):
        """Ends the job and returns what it has printed, after a look at the rewards of the first steps."""
        self.process.send_signal(signal.SIGINT)
        self.join(self.process.limit_s)
        code, _, err = finish(self.process)
        require(code == 130, f"exit code {code}: {err}")
        out = "".join(self.lines)
        for step in steps_of(out):
            usual = shared(pathlib.Path(self.process.args[0]).parent).get(step["step"])
            require(usual is None or step["reward"] == usual[1], f"another reward: {step}, not {usual}")
        return out


def trace_of(sandbox):
    return json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))


def sent_to(sandbox):
    """Returns {trainer rank: engine ranks} of the buckets that were sent."""
    sent = {}
    for event in trace_of(sandbox):
        if event["ph"] == "X" and event["name"].startswith("send bucket"):
            sent.setdefault(event["tid"], set()).add(event["args"]["to"])
    return sent


def more_engines_than_trainer_ranks_learn_the_same(sandbox):
    with Cluster(sandbox, gpus=GPUS) as cluster:
        require_same(sandbox, cluster.job(*engines_of(4)))
    sent = sent_to(sandbox)
    require(sent == {0: {"engine/0/0", "engine/2/0"}, 1: {"engine/0/1", "engine/2/1"}, 2: {"engine/1/0", "engine/3/0"},
                     3: {"engine/1/1", "engine/3/1"}}, f"{sent}")
    sandbox.require_clean()


def fewer_engine_ranks_than_trainer_ranks_learn_the_same(sandbox):
    with Cluster(sandbox, gpus=GPUS) as cluster:
        require_same(sandbox, cluster.job(*engines_of(1)))
    sent = sent_to(sandbox)
    require(sent == {0: {"engine/0/0"}, 1: {"engine/0/1"}}, f"{sent}")
    sandbox.require_clean()


def larger_engines_of(count):
    """Returns the settings of a job with two trainer ranks and this many engines of four ranks."""
    return ["trainer.num_ranks=2", f"engine.num_engines={count}", "engine.rollout_num_gpus_per_engine=4",
            f"cluster.num_gpus={2 + 4 * count}"]


@functools.cache
def from_files(build):
    """Returns the results of each step of a job with two trainer ranks whose engine of four ranks reads each version
    from a checkpoint, without a transfer plan."""
    sandbox = Sandbox(build)
    with Cluster(sandbox, gpus=GPUS) as cluster:
        code, out, err = finish(cluster.job(*larger_engines_of(1), "update.source=disk"))
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return by_step(out)


def engine_with_more_ranks_than_the_trainer_learns_the_same(sandbox):
    """Each trainer rank has half of the weights, and serves two ranks of the engine."""
    for mode in ("copy", "bucket"):
        with Cluster(sandbox, gpus=GPUS) as cluster:
            require_same(sandbox, cluster.job(*larger_engines_of(1), f"update.mode={mode}"), usual=from_files)
        sent = sent_to(sandbox)
        require(sent == {0: {"engine/0/0", "engine/0/1"}, 1: {"engine/0/2", "engine/0/3"}}, f"{mode}: {sent}")
        sandbox.require_clean()


def larger_engine_is_killed_in_an_update_and_comes_back(sandbox):
    """Both engines get the same bytes. Another engine is added before, which copies those of a peer or is sent them."""
    marker = sandbox.path / "broken"
    with Cluster(sandbox, gpus=10, TANDEM_FAILPOINT=f"engine/1/3 engine.stage 30 kill {marker}") as cluster:
        process = cluster.job(*larger_engines_of(1), LONG, "update.stall_timeout_ms=1500")
        before = read_until(process, "step", 2)
        scale_stopped(cluster, process, "engines=2")
        code, out, err = finish(process)
    require(code == 0, f"exit code {code}: {err}")
    notes = notes_of(before + out)
    for step in steps_of(before + out)[:nodes_test.STEPS]:
        require(step["reward"] == from_files(sandbox.build)[step["step"]][1], f"another reward: {step}")
    require(marker.is_file(), "nobody passed engine.stage")
    require(any(re.fullmatch(r"engine 1 joined at version \d+", note) for note in notes), f"not joined: {notes}")
    require(any(note.startswith("engine 1 lost: ") for note in notes), f"no loss: {notes}")
    require(any(note.startswith("engine 1 back at version ") for note in notes), f"not back: {notes}")
    require(not any(note.startswith("engine 0 lost") for note in notes), f"engine 0 is lost: {notes}")
    sandbox.require_clean()


def trainer_ranks_without_an_engine_on_their_gpu_learn_the_same(sandbox):
    """The first engine is on the GPUs of trainer ranks 0 and 1; ranks 2 and 3 write to its GPUs, too."""
    for mode in ("donate", "copy", "bucket", "names"):
        code, out, err = sandbox.run("--json", "--out", "out", *WORDS, "engine.num_engines=1", f"update.mode={mode}")
        require(code == 0, f"{mode}: exit code {code}: {err}")
        require(by_step(out) == nodes_test.shared(sandbox.build), f"{mode}: other steps: {by_step(out)}")
        written = {event["tid"] for event in trace_of(sandbox) if event["name"].startswith("write bucket")}
        require(mode == "names" or written == {0, 1, 2, 3}, f"{mode}: trainer ranks that have written: {written}")
    sandbox.require_clean()


TWO_TRAINERS = ("trainer.num_ranks=2", "cluster.gpu_bytes=67108864")
TWO_ENGINES = ("engine.num_engines=2", "engine.rollout_num_gpus_per_engine=2")
FOUR_ENGINES = ("engine.num_engines=4", "engine.rollout_num_gpus_per_engine=1")


@functools.cache
def with_gpus_of_their_own(build, engines):
    """Returns the results of a job with two trainer ranks and engines on GPUs of their own."""
    sandbox = Sandbox(build)
    code, out, err = sandbox.run("--json", "--out", "out", *WORDS, *TWO_TRAINERS, *engines, "engine.colocate=false",
                                 "cluster.num_gpus=6")
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return by_step(out)


def fewer_trainer_ranks_than_shared_gpus_learn_the_same(sandbox):
    """Each trainer rank serves the two ranks of an engine, or two engines; two of four GPUs have no trainer rank."""
    for engines, mode in ((TWO_ENGINES, "donate"), (TWO_ENGINES, "copy"), (TWO_ENGINES, "names"),
                          (FOUR_ENGINES, "donate"), (FOUR_ENGINES, "bucket"), (FOUR_ENGINES, "names")):
        code, out, err = sandbox.run("--json", "--out", "out", *WORDS, *TWO_TRAINERS, *engines, f"update.mode={mode}")
        require(code == 0, f"{engines}, {mode}: exit code {code}: {err}")
        require(by_step(out) == with_gpus_of_their_own(sandbox.build, engines), f"{engines}, {mode}: {by_step(out)}")
        generated = {event["tid"] for event in trace_of(sandbox) if event["name"] == "generate"}
        require(generated == {0, 1, 2, 3}, f"{engines}, {mode}: engine ranks that have generated: {generated}")
        written = [event for event in trace_of(sandbox) if event["name"].startswith("write bucket")]
        ends = {event["args"]["to"] for event in written}
        require(ends == {"same GPU", "other GPUs"}, f"{engines}, {mode}: weights went to {ends}")
    sandbox.require_clean()


def engine_without_a_trainer_rank_is_killed_in_an_update(sandbox):
    """Engine 1 is on a GPU without a trainer rank. The trainer rank on the GPU of engine 0 serves both."""
    marker = sandbox.path / "broken"
    environment = sandbox.environment(TANDEM_FAILPOINT=f"engine/1/0 engine.stage 3 kill {marker}")
    process = sandbox.start("--json", "--out", "out", *WORDS, *TWO_TRAINERS, *FOUR_ENGINES,
                            "update.stall_timeout_ms=1500", environment=environment)
    notes = require_same(sandbox, process, usual=lambda build: with_gpus_of_their_own(build, FOUR_ENGINES))
    require(marker.is_file(), "engine/1/0 did not pass engine.stage")
    require(any(note.startswith("engine 1 lost: ") for note in notes), f"no loss: {notes}")
    require(any(note.startswith("engine 1 back at version ") for note in notes), f"not back: {notes}")
    require(not any(re.match(r"engine [023] lost|restart", note) for note in notes), f"others are lost: {notes}")
    sandbox.require_clean()


CUDA = ("cluster.device=cuda", "rollout.num_rollout=1", "rollout.rollout_batch_size=16")


def trainer_ranks_that_serve_several_engine_ranks_do_so_on_gpus(sandbox):
    """The buckets of a trainer rank are read from other GPUs, or sent by NCCL to two ranks of an engine."""
    numbers = {}
    for mode in ("donate", "copy", "names"):
        code, out, err = sandbox.run("--json", "--out", "out", *WORDS, *TWO_TRAINERS, *TWO_ENGINES, *CUDA,
                                     f"update.mode={mode}", environment=sandbox.environment(**on_cuda(sandbox)))
        require(code == 0, f"{mode}: exit code {code}: {err}")
        numbers[mode] = by_step(out)
    require(numbers["donate"] == numbers["copy"] == numbers["names"], f"{numbers}")
    with Cluster(sandbox, device="cuda") as cluster:
        for source in ("tensors", "disk"):
            code, out, err = finish(cluster.job(*larger_engines_of(1), *CUDA, f"update.source={source}"))
            require(code == 0, f"{source}: exit code {code}: {err}")
            numbers[source] = by_step(out)
    require(numbers["tensors"] == numbers["disk"], f"{numbers}")
    sandbox.require_clean()


def one_of_two_engines_of_a_gather_group_is_killed_in_an_update(sandbox):
    """Engines 0 and 2 get the same bytes from the same trainer ranks."""
    marker = sandbox.path / "broken"
    with Cluster(sandbox, gpus=GPUS, TANDEM_FAILPOINT=f"engine/2/1 engine.stage 11 kill {marker}") as cluster:
        process = cluster.job(*engines_of(4), LONG, "update.stall_timeout_ms=1500", "update.mode=copy")
        code, out, err = finish(process)
    require(code == 0, f"exit code {code}: {err}")
    notes = notes_of(out)
    for step in steps_of(out):
        require(step["reward"] == shared(sandbox.build)[step["step"]][1], f"another reward: {step}")
    require(marker.is_file(), "nobody passed engine.stage")
    require(any(note.startswith("engine 2 lost: ") for note in notes), f"no loss: {notes}")
    require(any(note.startswith("engine 2 back at version ") for note in notes), f"not back: {notes}")
    require(not any(re.match(r"engine [013] lost", note) for note in notes), f"others are lost: {notes}")
    sandbox.require_clean()


def added_engine_joins_and_the_results_are_the_same(sandbox):
    with Cluster(sandbox, gpus=GPUS) as cluster:
        process = cluster.job(*engines_of(1), LONG)
        before = read_until(process, "step", 2)
        scale_stopped(cluster, process, "engines=2")
        notes = require_same(sandbox, process, before, shared)
    require("scaled from 1 to 2 engines" in notes, f"not scaled: {notes}")
    joined = [note for note in notes if re.fullmatch(r"engine 1 joined at version \d+", note)]
    require(len(joined) == 1 and not any("lost" in note for note in notes), f"notes: {notes}")
    events = [event for event in trace_of(sandbox) if event["name"] == "engine 1 joined"]
    require(len(events) == 1 and f"version {events[0]['args']['version']:.0f}" in joined[0], f"{events}, {joined}")
    generated = [event for event in trace_of(sandbox) if event["name"] == "generate"]
    require({event["tid"] for event in generated} == {0, 1, 2, 3}, "not every engine rank has generated")
    sandbox.require_clean()


def command_waits_until_the_added_engines_serve(sandbox):
    """Two engines are added on two nodes, and are ended again."""
    with Cluster(sandbox, gpus=GPUS) as cluster:
        process = cluster.job(*engines_of(2), ENDLESS)
        output = Output(process)
        code, out, err = scale(cluster, "policy", "engines=4")
        require(code == 0 and re.search(r"^job policy \(colocated-rl\): 4 engines serve version \d+$", out, re.M),
                f"exit code {code}: {out}{err}")
        code, out, err = scale(cluster, "engines=1")
        require(code == 0 and "1 engines serve" in out, f"exit code {code}: {out}{err}")
        require({name for name in cluster.places() if name.startswith("engine")} == {"engine/0/0", "engine/0/1"},
                f"actors: {cluster.places()}")
        code, out, err = scale(cluster, "engines=3")
        require(code == 0 and "3 engines serve" in out, f"exit code {code}: {out}{err}")
        notes = notes_of(output.interrupt())
    for engine in (2, 3):
        require(f"engine {engine} ended: the job is to have 1 engines" in notes, f"not ended: {notes}")
    require(not any("lost" in note or "restart" in note for note in notes), f"notes: {notes}")
    sandbox.require_clean()


def added_engine_waits_for_a_node_and_dies_like_the_others(sandbox):
    with Cluster(sandbox) as cluster:  # Four GPUs of each node: none is left.
        process = cluster.job(*engines_of(2), ENDLESS, "update.stall_timeout_ms=1500")
        output = Output(process)
        code, out, err = scale(cluster, "engines=3", "--timeout", "4")
        require(code == 1 and "2 of 3 engines of job policy serve after 4 s: engine 2 waits for a node with 2 free GPUs"
                in err and "tandem job scale policy engines=2" in err, f"exit code {code}: {out}{err}")
        cluster.add_node("third")
        code, out, err = scale(cluster, "engines=3")
        require(code == 0, f"exit code {code}: {out}{err}")
        node, pid = cluster.places()["engine/2/1"]
        require(cluster.node_names()[node] == "third", f"engine 2 is on {cluster.node_names()[node]}")
        os.kill(pid, signal.SIGKILL)
        output.wait_for_note(r"engine 2 back at version \d+$")
        cluster.lose_power("third")
        output.wait_for_note(r"engine 2 lost: .*; 2 of 3 go on$", 2)
        notes = notes_of(output.interrupt())
    require(any(re.fullmatch(r"engine 2 joined at version \d+", note) for note in notes), f"not joined: {notes}")
    require(not any("restart" in note for note in notes), f"a restart: {notes}")


def restarted_and_resumed_jobs_keep_the_added_engine(sandbox):
    with Cluster(sandbox, gpus=GPUS) as cluster:
        words = [*engines_of(1), "job.save_interval=1"]
        process = cluster.job(*words, ENDLESS)
        output = Output(process)
        code, out, err = scale(cluster, "engines=2")
        require(code == 0, f"exit code {code}: {out}{err}")
        os.kill(cluster.places()["trainer/1"][1], signal.SIGKILL)
        output.wait_for_note("resuming out/checkpoint after step ")
        code, out, err = scale(cluster, "engines=2")  # The command finds the trainer rank that was started again.
        require(code == 0 and "2 engines serve" in out, f"exit code {code}: {out}{err}")
        require("engine/1/1" in cluster.places(), f"actors: {cluster.places()}")
        notes = notes_of(output.interrupt())
        require(notes.count("scaled from 1 to 2 engines") == 1, f"notes: {notes}")
        last = int(re.search(r'"step": ?(\d+)', (sandbox.path / "out/checkpoint/state.json").read_text("utf-8"))[1])
        code, out, err = finish(cluster.job(*words, f"rollout.num_rollout={last + 2}", "--resume", "out"))
        require(code == 0, f"exit code {code}: {err}")
        require("resuming with 2 engines, to which the job was scaled; engine.num_engines is 1" in notes_of(out),
                f"notes: {notes_of(out)}")
        generated = {event["tid"] for event in trace_of(sandbox) if event["name"] == "generate"}
        require(generated == {0, 1, 2, 3}, f"engine ranks that have generated: {generated}")
        code, out, err = finish(cluster.job(*engines_of(1), f"rollout.num_rollout={last + 3}", "--resume", "out"))
        require(code == 0 and any("with 2 engines" in note for note in notes_of(out)), f"exit code {code}: {err}{out}")
        code, out, err = finish(cluster.job(*engines_of(3), f"rollout.num_rollout={last + 4}", "--resume", "out"))
        require(code == 0 and not any("to which the job was scaled" in note for note in notes_of(out)),
                f"exit code {code}: {err}{out}")
    sandbox.require_clean()


def requests_that_cannot_be_met_are_refused_with_both_numbers(sandbox):
    with Cluster(sandbox, gpus=GPUS) as cluster:
        code, _, err = scale(cluster, "engines=2")
        require(code == 1 and "no job runs in this cluster" in err, f"exit code {code}: {err}")
        process = cluster.job(*engines_of(2), ENDLESS, "rollout.num_engines_min=2")
        output = Output(process)
        for words, number, expected in (
                (["engines=0"], 2, 'expected engines=N, where N is the number of engines that the job is to have'),
                (["engines"], 2, "expected engines=N"),
                (["engines=2", "--timeout", "0"], 2, "expected seconds from 1 to 86400"),
                (["critic", "engines=2"], 1, "no job with update.model critic runs in this cluster; there is: policy"),
                (["engines=129"], 1, "job colocated-rl has 2 engines and cannot have 129, because a job has at most 128"),
                (["engines=1"], 1, "job colocated-rl has 2 engines and cannot have 1, because it needs 2")):
            code, out, err = scale(cluster, *words)
            require(code == number and expected in err, f"{words}: exit code {code}: {out}{err}")
        output.interrupt()
        words = ("--json", "--out", "out", *WORDS, ENDLESS)
        environment = dict(cluster.environment, TANDEM_ADDRESS=cluster.address)
        output = Output(sandbox.start(*words, environment=environment))
        code, out, err = scale(cluster, "engines=3")
        require(code == 1 and "cannot have 3, because its engines are on the GPUs of its 4 trainer ranks; start it with "
                "engine.colocate: false" in err, f"exit code {code}: {out}{err}")
        output.interrupt()
    sandbox.require_clean()


if __name__ == "__main__":
    sys.exit(main([more_engines_than_trainer_ranks_learn_the_same,
                   fewer_engine_ranks_than_trainer_ranks_learn_the_same,
                   engine_with_more_ranks_than_the_trainer_learns_the_same,
                   larger_engine_is_killed_in_an_update_and_comes_back,
                   trainer_ranks_without_an_engine_on_their_gpu_learn_the_same,
                   fewer_trainer_ranks_than_shared_gpus_learn_the_same,
                   engine_without_a_trainer_rank_is_killed_in_an_update,
                   trainer_ranks_that_serve_several_engine_ranks_do_so_on_gpus,
                   one_of_two_engines_of_a_gather_group_is_killed_in_an_update,
                   added_engine_joins_and_the_results_are_the_same,
                   command_waits_until_the_added_engines_serve,
                   added_engine_waits_for_a_node_and_dies_like_the_others,
                   restarted_and_resumed_jobs_keep_the_added_engine,
                   requests_that_cannot_be_met_are_refused_with_both_numbers]))
