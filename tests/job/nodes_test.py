#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""nodes_test.py - a job with trainers on one node and engines on the other has the same
results as one that shares GPUs, also when an engine or a connection is lost.
"""
import contextlib
import ctypes
import functools
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time

from support import (Failure, Process, Sandbox, finish, main, notes_of, numbers_of, on_cuda, read_until, require, steps_of,
                     wait_for_note)

STEPS = 5
# A learning rate that does not depend on the number of steps.
WORDS = [f"rollout.num_rollout={STEPS}", "rollout.warmup_steps=2", "trainer.min_lr=2e-3"]
FAR = ["engine.colocate=false", "cluster.num_gpus=8"]
GPUS = 4  # GPUs of each node: enough for the trainers or for the engines.
UPDATE_S = 100  # Longest seconds of a call of an update.
PIDFD_GETFD = 438
HALF_OPEN = 1100  # Connections that once ended a job.
DIFFERENCE_MAX = 5e-5  # Largest difference of a token's log-probability between trainer and engines.


class Cluster:
    """Daemons, by default two, and a Redis server in a sandbox, with virtual GPUs or, on fake libraries, CUDA GPUs."""

    def __init__(self, sandbox, device="host", names=("first", "second"), without_gpus=None,
                 gpus=GPUS, **environment):
        self.sandbox = sandbox
        self.names = names
        self.gpus = gpus  # GPUs of each other node.
        self.without_gpus = without_gpus  # Name of the node without GPUs, if there is one.
        self.device = device
        self.token = sandbox.tmp / "token"
        self.token.write_bytes(os.urandom(32))
        self.token.chmod(0o600)
        self.environment = sandbox.environment(TANDEM_TOKEN_FILE=str(self.token), **environment)
        self.running = []
        self.daemons = {}  # Process ID of each daemon.
        self.address = None

    def __enter__(self):
        try:
            self.start(["redis-server", "--port", "0", "--unixsocket", self.store(), "--dir", self.sandbox.tmp,
                        "--save", ""], "eady to accept")
            for name in self.names:
                self.add_node(name)
        except BaseException:
            self.stop()
            raise
        return self

    def store(self):
        return self.sandbox.tmp / "redis.sock"

    def add_node(self, name):
        """Starts one more daemon."""
        said = self.start([self.sandbox.build / "tandemd", "--redis", f"unix://{self.store()}", "--listen", "127.0.0.1",
                           "--name", name, "--gpus", 0 if name == self.without_gpus else self.gpus,
                           "--gpu-bytes", 64 << 20, "--cpus", 8, "--device", self.device], "ready ",
                          on_cuda(self.sandbox, name) if self.device == "cuda" else {})
        self.daemons[name] = int(said.split()[1])
        self.address = self.address or said.split()[2]

    def start(self, words, until, more=None):
        process = Process([str(word) for word in words], env={**(more or {}), **self.environment}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.sandbox.path)
        self.running.append(process)
        for line in process.stdout:
            if until in line:
                return line
        raise Failure(f"{words[0]} ended before it said {until!r}")

    def stop(self):
        for process in reversed(self.running):
            process.send_signal(signal.SIGTERM)
            finish(process)
        self.running = []
        self.token.unlink()

    def __exit__(self, *_):
        self.stop()

    def job(self, *words):
        """Starts a job in this cluster from the first node."""
        environment = dict(self.environment, TANDEM_ADDRESS=self.address)
        return self.sandbox.start("--json", "--out", "out", *WORDS, *FAR, *words, environment=environment)

    def node_names(self):
        """Returns {ID: name} of the nodes."""
        environment = dict(self.environment, TANDEM_ADDRESS=self.address)
        code, out, err = finish(self.sandbox.tandem("list", "nodes", "--json", environment=environment))
        require(code == 0, f"list: exit code {code}: {err}")
        return {node["id"]: node["name"] for node in json.loads(out)}

    def lose_power(self, name):
        """Kills every process of a node at once."""
        daemon = self.daemons[name]
        supervisor = int(pathlib.Path(f"/proc/{daemon}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in [*descendants(daemon), daemon, supervisor]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def places(self):
        """Returns {actor: (node, pid)} of the live actors."""
        environment = dict(self.environment, TANDEM_ADDRESS=self.address)
        code, out, err = finish(self.sandbox.tandem("list", "actors", "--live", "--json", environment=environment))
        require(code == 0, f"list: exit code {code}: {err}")
        return {actor["name"]: (actor["node_id"], actor["pid"]) for actor in json.loads(out)}


def descendants(pid):
    """Returns the process IDs of all processes below one."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{entry}/stat").read_text(encoding="utf-8")
                children.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
    found, below = [], [pid]
    while below:
        mine = children.get(below.pop(), [])
        found += mine
        below += mine
    return found


def by_step(out):
    return {step["step"]: numbers_of(step) for step in steps_of(out)}


@functools.cache
def shared(build):
    """Returns the results of each step of a job whose engines share the trainers' GPUs."""
    sandbox = Sandbox(build)
    code, out, err = sandbox.run("--json", "--out", "out", *WORDS)
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return by_step(out)


def require_same(sandbox, process, before="", usual=shared):
    """Runs the job to its end, compares its numbers with those of `usual`, and returns the notes."""
    code, out, err = finish(process)
    out = before + out
    require(code == 0, f"exit code {code}: {err}")
    require(by_step(out) == usual(sandbox.build), f"other steps: {by_step(out)}, not {usual(sandbox.build)}")
    return notes_of(out)


def spans_of(sandbox, name):
    """Returns [(row, bytes)] of the trace's spans whose names begin with this text."""
    events = json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))
    return [(event["tid"], event["args"]["bytes"]) for event in events
            if event["ph"] == "X" and event["name"].startswith(name)]


def engines_on_another_node_learn_the_same(sandbox):
    with Cluster(sandbox) as cluster:
        process = cluster.job()
        before = read_until(process, "step", 1)
        nodes = {kind: {node for name, (node, _) in cluster.places().items() if name.startswith(kind)}
                 for kind in ("trainer", "engine")}
        require(len(nodes["trainer"]) == 1 and len(nodes["engine"]) == 1 and nodes["trainer"] != nodes["engine"],
                f"not on a node each: {nodes}")
        require_same(sandbox, process, before)
    sent = spans_of(sandbox, "send bucket")
    require({row for row, _ in sent} == {0, 1, 2, 3}, f"not every trainer rank has sent: {sent}")
    code, out, err = finish(sandbox.tandem("plan", os.path.join(os.path.dirname(__file__), "../../examples/colocated_rl/"
                                                              "job.yaml"), f"job.library={sandbox.library()}", *FAR))
    require(code == 0 and "GPU 7" in out, f"the plan: exit code {code}: {err}{out}")
    sandbox.require_clean()


def broken_at(sandbox, step, how, count=11):
    """Kills an engine rank in its third update: the steps have the same results, and the job names the engine."""
    marker = sandbox.path / "broken"
    with Cluster(sandbox, TANDEM_FAILPOINT=f"engine/1/1 {step} {count} {how} {marker}") as cluster:
        process = cluster.job("update.stall_timeout_ms=1500", "update.mode=copy", f"update.timeout_ms={UPDATE_S * 1000}")
        notes = require_same(sandbox, process)
    require(marker.is_file(), f"nobody passed {step}")
    require(any(re.search(r"^engine 1 lost: actor engine/1/1 ", note) for note in notes), f"no loss: {notes}")
    require(any(note.startswith("engine 1 back at version ") for note in notes), f"not back: {notes}")
    sandbox.require_clean()


def engine_killed_in_an_update_is_left_out(sandbox):
    broken_at(sandbox, "engine.stage", "kill")


def engine_frozen_in_an_update_is_killed_and_left_out(sandbox):
    broken_at(sandbox, "engine.staged", "stop")


def gpus_of_two_nodes_exchange_weights(sandbox):
    with Cluster(sandbox, device="cuda") as cluster:
        process = cluster.job("cluster.device=cuda", "rollout.num_rollout=2", "rollout.rollout_batch_size=16")
        before = read_until(process, "step", 1)
        require(len({node for node, _ in cluster.places().values()}) == 2, "not on two nodes")
        code, out, err = finish(process)
        require(code == 0, f"exit code {code}: {err}")
    steps = steps_of(before + out)
    require(len(steps) == 2, f"{len(steps)} steps")
    for step in steps:
        require(0 < step["metrics"]["logprob_diff_max"] <= DIFFERENCE_MAX, f"{step['metrics']}")
    sandbox.require_clean()


def gpus_of_two_nodes_want_nccl(sandbox):
    with Cluster(sandbox, device="cuda", TANDEM_NCCL_LIBRARY="/nowhere/libnccl.so") as cluster:
        code, _, err = finish(cluster.job("cluster.device=cuda"))
    require(code == 1 and "/nowhere/libnccl.so" in err, f"exit code {code}: {err}")
    sandbox.require_clean()


def engine_that_ends_while_its_transfer_pair_connects_is_not_awaited(sandbox):
    """Kills an engine rank while its trainer rank waits for it. Transfer pairs are opened in the first update."""
    for step, how in (("engine.draw", "kill"), ("engine.draw", "stop"), ("engine.drawn", "kill")):
        begin = time.monotonic()
        broken_at(sandbox, step, how, count=1)
        (sandbox.path / "broken").unlink()
        took_s = time.monotonic() - begin
        require(took_s < UPDATE_S, f"{how} at {step}: the job took {took_s:.0f} s")


def cut_tcp(pid):
    """Breaks every TCP connection of a process, like an unplugged cable."""
    system = ctypes.CDLL(None, use_errno=True)
    process = os.pidfd_open(pid)
    cut = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        copy = system.syscall(PIDFD_GETFD, process, int(name), 0)
        if copy < 0:
            continue
        try:
            with socket.socket(fileno=copy) as link:
                if link.family == socket.AF_INET:
                    link.getpeername()
                    link.shutdown(socket.SHUT_RDWR)
                    cut += 1
        except OSError:
            with contextlib.suppress(OSError):
                os.close(copy)  # The descriptor is no socket, or a listening one.
    os.close(process)
    return cut


def cut_connection_of_a_transfer_pair_costs_one_update_and_is_opened_again(sandbox):
    with Cluster(sandbox) as cluster:
        process = cluster.job()
        before = read_until(process, "step", 1)
        require(cut_tcp(cluster.places()["engine/0/1"][1]) > 0, "there was no connection to cut")
        notes = require_same(sandbox, process, before)
    require(any(re.search(r"^update to version \d+ aborted: ", note) for note in notes), f"no abort: {notes}")
    require(not any("lost" in note for note in notes), f"somebody is lost: {notes}")
    sandbox.require_clean()


def listening_port(pid):
    """Returns the TCP port at which a process listens."""
    sockets = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(entry))
    for line in pathlib.Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            return int(words[1].split(":")[1], 16)
    raise Failure(f"process {pid} does not listen")


def flooded_ports_of_workers_do_not_disturb_the_job(sandbox):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    with Cluster(sandbox) as cluster, contextlib.ExitStack() as flood:
        process = cluster.job()
        before = read_until(process, "step", 1)
        process.send_signal(signal.SIGSTOP)  # The job does not end meanwhile.
        places = cluster.places()
        for name in ("trainer/1", "engine/0/1"):
            port = listening_port(places[name][1])
            for _ in range(HALF_OPEN):  # Clients that never prove that they know the token.
                flood.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        process.send_signal(signal.SIGCONT)
        notes = require_same(sandbox, process, before)
        require(not [note for note in notes if "restart" in note or "left out" in note], f"notes: {notes}")
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    sandbox.require_clean()


def second_job_in_the_same_cluster_learns_the_same(sandbox):
    with Cluster(sandbox) as cluster:
        for _ in range(2):
            require_same(sandbox, cluster.job())
    sandbox.require_clean()


def job_is_resumed_in_the_same_cluster(sandbox):
    with Cluster(sandbox) as cluster:
        code, out, err = finish(cluster.job("rollout.num_rollout=3"))
        require(code == 0, f"exit code {code}: {err}")
        notes = require_same(sandbox, cluster.job("--resume", "out"), out)
        require("resuming out/checkpoint after step 3 of 5" in notes, f"not resumed: {notes}")
    sandbox.require_clean()


def require_restarted(sandbox, process, before, usual=shared):
    """Runs the job to its end. It must have restarted once, and each step must have the numbers of `usual`."""
    code, out, err = finish(process)
    out = before + out
    require(code == 0, f"exit code {code}: {err}")
    for step in steps_of(out):
        require(numbers_of(step) == usual(sandbox.build)[step["step"]], f"other numbers: {step}")
    require(steps_of(out)[-1]["step"] == STEPS, f"the last step: {out}")
    restarts = [note for note in notes_of(out) if note.startswith("restart ")]
    require(len(restarts) == 1, f"restarts: {notes_of(out)}")


def killed_trainer_restarts_the_job_in_the_same_cluster(sandbox):
    with Cluster(sandbox) as cluster:
        process = cluster.job("job.save_interval=2", "update.mode=copy")
        before = read_until(process, "step", 3)
        os.kill(cluster.places()["trainer/1"][1], signal.SIGKILL)
        require_restarted(sandbox, process, before)
    sandbox.require_clean()


def start_beside(cluster, *words):
    """Starts a job on the first node, which has no GPUs. Returns the process, its first output, the name of the
    trainers' node and that of the engines'."""
    process = cluster.job("job.save_interval=2", "update.mode=copy", *words)
    before = read_until(process, "step", 1)
    names = cluster.node_names()
    places = {name: names[node] for name, (node, _) in cluster.places().items()}
    engines = {node for name, node in places.items() if name.startswith("engine")}
    require(len(engines) == 1 and places["trainer/0"] not in engines, f"places: {places}")
    return process, before, places["trainer/0"], engines.pop()


def node_of_all_engines_is_lost_and_they_come_back_at_another(sandbox):
    with Cluster(sandbox, names=("first", "second", "third", "fourth"), without_gpus="first") as cluster:
        process, out, _, engines = start_beside(cluster, "rollout.num_rollout=1000")
        cluster.lose_power(engines)
        for _ in range(2):  # One engine may be back several steps before the other.
            out += wait_for_note(process, r"engine \d back at version ")
        out += read_until(process, "step", STEPS)
        process.send_signal(signal.SIGINT)
        code, rest, err = finish(process)
    require(code == 130, f"exit code {code}: {err}")
    steps, notes = by_step(out + rest), notes_of(out + rest)
    for step, numbers in shared(sandbox.build).items():
        require(steps[step] == numbers, f"other numbers in step {step}: {steps[step]}, not {numbers}")
    require(any(re.search(r"^engine \d lost: .*; 0 of 2 are left$", note) for note in notes), f"no loss: {notes}")
    require(not any(note.startswith("restart ") for note in notes), f"a restart: {notes}")
    for engine in range(2):
        require(any(note.startswith(f"engine {engine} back at ") for note in notes), f"not back: {notes}")


def node_of_the_trainers_is_lost_and_the_job_restarts_at_another(sandbox):
    with Cluster(sandbox, names=("first", "second", "third", "fourth"), without_gpus="first") as cluster:
        process, before, trainers, _ = start_beside(cluster)
        cluster.lose_power(trainers)
        require_restarted(sandbox, process, before)


if __name__ == "__main__":
    sys.exit(main([engines_on_another_node_learn_the_same, engine_killed_in_an_update_is_left_out,
                   engine_frozen_in_an_update_is_killed_and_left_out,
                   gpus_of_two_nodes_exchange_weights, gpus_of_two_nodes_want_nccl,
                   engine_that_ends_while_its_transfer_pair_connects_is_not_awaited,
                   flooded_ports_of_workers_do_not_disturb_the_job,
                   second_job_in_the_same_cluster_learns_the_same, job_is_resumed_in_the_same_cluster,
                   killed_trainer_restarts_the_job_in_the_same_cluster,
                   node_of_all_engines_is_lost_and_they_come_back_at_another,
                   node_of_the_trainers_is_lost_and_the_job_restarts_at_another,
                   cut_connection_of_a_transfer_pair_costs_one_update_and_is_opened_again]))
