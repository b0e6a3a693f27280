#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""span_job.py BUILD - a colocated job on two of three machines, with encrypted connections, as docs/cluster.md has it.

The machines are network namespaces with one link each (network.py).  Each node has three GPUs, so that the job, whose
engines have two each, needs two of them.  The results must be those of one node.  An update must send no weights over
the links if each node has all of them, and otherwise each byte that a node lacks once.
"""
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
import unittest

import cluster
import started_nodes
from recorder import Recorder
from started_nodes import StartedNodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "job"))
import support  # noqa: E402

STEPS = 4
UPDATES = STEPS + 1  # The first update follows the supervised steps.
# So many supervised steps that rewards are not all zero.
WORDS = [f"rollout.num_rollout={STEPS}", "rollout.warmup_steps=15", "trainer.warmup_lr=1e-2",
         "trainer.warmup_lr_warmup_iters=2", "trainer.replicas=2"]
MODES = ("donate", "copy", "bucket", "names")  # Ways in which an update writes weights.
# A trainer whose weights are divided among the nodes, and so large that what passes beside them is little.
DIVIDED = ["trainer.replicas=1", "model.hidden_size=256", "model.intermediate_size=1024", "cluster.gpu_bytes=256 MiB",
           "rollout.rollout_batch_size=8", "rollout.warmup_steps=3", "update.update_weight_buffer_size=1 MiB"]
APART = ["engine.colocate=false", "cluster.num_gpus=8", "update.mode=copy"]
# GPUs of each node: those of one of the job's two engines, and one more, which must not get a part of the other engine.
GPUS = 3
JOB_SECONDS = 240  # Longest time of a job, and of an update, on a busy machine.
# Part of the weights of all engines that an update may send besides weights: calls of the driver, votes, renewals of
# leases, and health checks, of which a busy machine makes many in the time of an update.  A rank has as much weights.
CALLS_PART = 1 / 4
# The same for a trainer whose weights are divided, as a part of the weights that cross in both directions.
BESIDE_PART = 1 / 12
# Names of Redis commands, records, methods and actors, which pass between the machines in plain text without TLS.
PLAIN = (b"FCALL", b"node/", b"TDMRPC", b"trainer/0", b"engine/1/1")
SAMPLE_BYTES = 64


def by_step(lines):
    return {step["step"]: support.numbers_of(step) for step in support.steps_of(lines)}


def samples_of(checkpoint):
    """Returns pieces of the largest tensor of a model's file: bytes that no other file and no message has by chance."""
    data = (checkpoint / "model.safetensors").read_bytes()
    header_bytes, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + header_bytes])
    tensors = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
    begin, end = max(tensors, key=lambda offsets: offsets[1] - offsets[0])
    tensor = data[8 + header_bytes + begin:8 + header_bytes + end]
    return [tensor[at:at + SAMPLE_BYTES] for at in range(0, len(tensor) - SAMPLE_BYTES, len(tensor) // 16)]


class Update:
    """The last update of a job: what was recorded and counted from its begin to its end."""

    def __init__(self):
        self.link_bytes = {}  # By node, what it sent.
        self.recorded = b""


class Span(StartedNodes):
    def setUp(self):
        super().setUp()
        self.files = self.directory / self.id().rpartition(".")[2]  # What the test's job writes.
        self.files.mkdir()
        self.begin, self.end = self.files / "begin", self.files / "end"  # Made when the driver stops there.

    def start_nodes(self, gpus, *options):
        """Starts a node with so many GPUs on each machine, the head node first."""
        def words(node):
            return ("--num-cpus", "8", "--num-gpus", gpus[node], "--node-name", node, *options)

        head = self.start_head(*words("n1"))
        for node in ("n2", "n3"):
            done = self.join(node, head, *words(node))
            self.assertEqual(done.returncode, 0, done.stderr)

    def start_job(self, *words, node="n1", **environment):
        """Starts the job on a node, or without a cluster if `node` is None."""
        library = self.build / "examples" / "colocated_rl" / "colocated_rl.so"
        command = [str(self.build / "tandem"), "run", str(support.JOB), f"job.library={library}", "--json", "--out",
                   str(self.files / "out"), "--overwrite", *WORDS, *words]
        environment.update(self.environment(node or "alone", self.token), OPENBLAS_NUM_THREADS="1")
        if node:
            command = self.network.machines[node].words(*command)
            environment["TANDEM_ADDRESS"] = "auto"
        with (self.files / "stderr").open("w") as errors:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                                       env=environment, cwd=self.files, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def finish(self, process):
        """Waits for the end of the job and returns the rest of its lines."""
        lines, _ = process.communicate(timeout=JOB_SECONDS)
        self.assertEqual(process.returncode, 0, (self.files / "stderr").read_text())
        return lines

    def read_until(self, process, *texts):
        """Returns the lines of the job up to the first one that contains one of these texts."""
        lines = ""
        for line in process.stdout:
            lines += line
            if any(text in line for text in texts):
                return lines
        return self.fail(f"the job has ended before {texts}: {(self.files / 'stderr').read_text()}")

    def read_until_started(self, process):
        """Returns the lines of the job up to the one about its updates, or, in a mode without it, its first step."""
        return self.read_until(process, '"update ', '"warmup"')

    def places(self):
        """Returns {actor: name of its node} of the live actors."""
        nodes = json.loads(self.on("n1", "list", "nodes", "--json").stdout)
        actors = json.loads(self.on("n1", "list", "actors", "--live", "--json").stdout)
        names = {node["id"]: node["name"] for node in nodes}
        return {actor["name"]: names[actor["node_id"]] for actor in actors}

    def wait_for(self, holds, process):
        deadline = time.monotonic() + JOB_SECONDS
        while not (found := holds()):
            self.assertIsNone(process.poll(), (self.files / "stderr").read_text())
            self.assertLess(time.monotonic(), deadline, "the job has not come so far")
            time.sleep(0.005)
        return found

    def failpoints(self):
        """Returns the rules by which the driver stops before and after its last update."""
        for path in (self.begin, self.end):
            path.unlink(missing_ok=True)
        return (f"driver source.begin {UPDATES} stop {self.begin};"
                f"driver source.finished {UPDATES} stop {self.end}")

    def sent_bytes(self):
        """Returns, by node, how many bytes it has sent over its link: what the router's end of it has received."""
        lines = pathlib.Path("/proc/net/dev").read_text(encoding="ascii").splitlines()[2:]
        counters = {line.split(":")[0].strip(): line.split(":")[1].split() for line in lines}
        return {node: int(counters[node][0]) for node in ("n1", "n2", "n3")}

    def watch_update(self, process):
        """Waits until the driver has made its last update, and returns what passed over the links meanwhile."""
        update = Update()
        driver = self.wait_for(lambda: cluster.stopped_process(self.begin), process)
        before = self.sent_bytes()
        recorder = Recorder()
        os.kill(driver, signal.SIGCONT)
        driver = self.wait_for(lambda: cluster.stopped_process(self.end), process)
        recorder.end()
        update.link_bytes = {node: count - before[node] for node, count in self.sent_bytes().items()}
        update.recorded = bytes(recorder.bytes)
        os.kill(driver, signal.SIGCONT)
        return update

    def events(self, name):
        events = json.loads((self.files / "out" / "trace.json").read_text(encoding="utf-8"))
        return [event for event in events if event["name"].startswith(name)]

    def plan(self):
        plans = [event["args"] for event in self.events("update plan")]
        self.assertTrue(plans)
        return plans[-1]

    def on_one_node(self, *words):
        """Returns the results of each step of the same job on one node."""
        return by_step(self.finish(self.start_job(*words, node=None)))

    def require_paired(self, places):
        """Checks that the job uses two nodes, and that each engine is with the trainers of its GPUs."""
        used = [{places[name] for name in (f"engine/{i}/0", f"engine/{i}/1", f"trainer/{2 * i}",
                                           f"trainer/{2 * i + 1}")} for i in range(2)]
        self.assertTrue(all(len(nodes) == 1 for nodes in used) and used[0] != used[1], places)

    def learn_on_two_nodes(self, mode):
        """Runs the job with this update.mode on two of the nodes, and returns its results and what was recorded until
        all ranks had started."""
        recorder = Recorder()
        process = self.start_job(f"update.mode={mode}", TANDEM_FAILPOINT=self.failpoints())
        try:
            lines = self.read_until_started(process)
            process.send_signal(signal.SIGSTOP)  # The gradients of steps would be too much for the recorder.
            recorder.end()
            process.send_signal(signal.SIGCONT)
            self.require_paired(self.places())
            update = self.watch_update(process)
            lines += self.finish(process)
        finally:
            process.kill()
        self.assertEqual([note for note in support.notes_of(lines) if "lost" in note or "restart" in note], [])
        self.require_no_weights_sent(update)
        return by_step(lines), recorder.bytes

    def test_job_on_two_of_three_nodes_learns_the_same_and_sends_no_weights(self):
        expected = self.on_one_node()
        self.assertTrue(all(reward > 0 for _, reward, *_ in expected.values()), expected)
        self.assertTrue(all("grad_norm" in dict(metrics) for *_, metrics in expected.values()), expected)
        self.start_nodes(dict.fromkeys(("n1", "n2", "n3"), GPUS))
        for mode in MODES:
            with self.subTest(mode=mode):
                found, recorded = self.learn_on_two_nodes(mode)
                self.assertEqual(found, expected)
                for text in (*PLAIN, self.token.read_bytes()):
                    self.assertFalse(text in recorded, f"{text} was recorded")

    def ports_to_others(self, actor, node):
        """Returns the ports of the TCP connections that an actor's process on this node has to other machines."""
        actors = json.loads(self.on("n1", "list", "actors", "--live", "--json").stdout)
        pid, = (entry["pid"] for entry in actors if entry["name"] == actor)
        lines = subprocess.run(self.network.machines[node].words("ss", "-Htnp", "state", "established"),
                               capture_output=True, text=True, check=True).stdout.splitlines()
        ends = [line.split()[2:4] for line in lines if f"pid={pid}," in line]
        return [one.rpartition(":")[2] for one, other in ends if one.rpartition(":")[0] != other.rpartition(":")[0]]

    def break_connections(self, actor, node):
        """Ends those connections, as a router that forgets them does."""
        ports = self.ports_to_others(actor, node)
        self.assertTrue(ports)
        for port in ports:
            subprocess.run(self.network.machines[node].words("ss", "-K", "sport", "=", f":{port}"),
                           capture_output=True, check=True)
        if set(ports) & set(self.ports_to_others(actor, node)):
            self.skipTest("this kernel cannot end TCP connections (CONFIG_INET_DIAG_DESTROY)")

    def test_broken_connection_between_two_trainers_restarts_the_job(self):
        """All ranks live and all nodes are reached, but a group of trainers has ended."""
        expected = self.on_one_node()
        self.start_nodes(dict.fromkeys(("n1", "n2", "n3"), GPUS))
        process = self.start_job("job.save_interval=2")
        lines = self.read_until(process, '"kind":"step","step":2,')
        places = self.places()
        self.require_paired(places)
        process.send_signal(signal.SIGSTOP)  # The job does not end meanwhile.
        self.break_connections("trainer/0", places["trainer/0"])
        process.send_signal(signal.SIGCONT)
        lines += self.finish(process)
        restarts = [note for note in support.notes_of(lines) if note.startswith("restart ")]
        self.assertEqual(len(restarts), 1, restarts)
        self.assertIn("died or cannot be reached", restarts[0])
        self.assertEqual(by_step(lines), expected)

    def require_no_weights_sent(self, update):
        """Checks that the plan sends nothing to other nodes, that this is so, and that all that the links have carried
        is little beside the weights."""
        plan = self.plan()
        self.assertEqual(plan["other_node_bytes"], 0)
        written = self.events("write bucket")
        self.assertEqual({event["tid"] for event in written}, {0, 1, 2, 3})
        self.assertFalse([event for event in written if event["args"]["to"] == "other nodes"])
        weights_bytes = plan["same_gpu_bytes"] + plan["other_gpu_bytes"]
        sent = sum(update.link_bytes.values())
        print(f"an update of {weights_bytes} bytes sent {update.link_bytes}", file=sys.stderr)
        self.assertLess(sent, weights_bytes * CALLS_PART)

    def test_divided_trainer_sends_what_the_plan_says_and_no_more(self):
        """Each node has a half of the trainer's weights, and an engine that wants all of them."""
        expected = self.on_one_node(*DIVIDED)
        self.start_nodes(dict.fromkeys(("n1", "n2", "n3"), GPUS))
        for mode in ("donate", "copy"):  # In one chunk, and in several.
            with self.subTest(mode=mode):
                process = self.start_job(*DIVIDED, f"update.mode={mode}", TANDEM_FAILPOINT=self.failpoints())
                try:
                    lines = self.read_until_started(process)
                    places = self.places()
                    self.require_paired(places)
                    update = self.watch_update(process)
                    lines += self.finish(process)
                finally:
                    process.kill()
                self.assertEqual(by_step(lines), expected)
                self.require_plan_sent(update, places)

    def require_plan_sent(self, update, places):
        """Checks that each node has sent over its link what the plan says that it sends to the other one, and little
        beside it, and that the plan lets no byte of the model cross twice."""
        plan = self.plan()
        planned = plan["other_node_bytes"]
        self.assertLessEqual(planned, (plan["same_gpu_bytes"] + plan["other_gpu_bytes"]) / 2)  # Two engines have it.
        crossed = dict.fromkeys(update.link_bytes, 0)  # In all updates, by node.
        for event in self.events("write bucket"):
            if event["args"]["to"] == "other nodes":
                crossed[places[f"trainer/{event['tid']}"]] += event["args"]["bytes"]
        print(f"{UPDATES} updates in which {crossed} bytes cross; one sent {update.link_bytes}", file=sys.stderr)
        self.assertEqual(sum(crossed.values()), UPDATES * planned)
        for node, sent in update.link_bytes.items():
            self.assertGreaterEqual(sent, crossed[node] // UPDATES)
            self.assertLess(sent, crossed[node] / UPDATES + planned * BESIDE_PART)

    def test_weights_that_cross_are_counted_and_recorded(self):
        """Shows that the test above would notice weights: here the engines are on another node, and nothing is
        encrypted."""
        self.start_nodes({"n1": 4, "n2": 4, "n3": 0}, "--tls", "off")
        recorder = Recorder()
        process = self.start_job(*APART, TANDEM_FAILPOINT=self.failpoints())
        update = self.watch_update(process)
        recorder.end()
        self.finish(process)
        for text in PLAIN:
            self.assertTrue(text in recorder.bytes, f"{text} was not recorded")
        sent = sum(event["args"]["bytes"] for event in self.events("send bucket")) // UPDATES
        counted = sum(update.link_bytes.values())
        print(f"an update that sends {sent} bytes of weights sent {update.link_bytes}", file=sys.stderr)
        self.assertGreater(sent, 100_000)
        self.assertGreaterEqual(counted, sent)
        self.assertLess(counted, sent * (1 + CALLS_PART))
        samples = samples_of(self.files / "out" / "hf")
        self.assertTrue(all(sample in update.recorded for sample in samples))


if __name__ == "__main__":
    started_nodes.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
