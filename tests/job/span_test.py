#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""span_test.py - a colocated job whose trainers and engines are on several nodes has the same results as on one
node, also when an engine, a trainer or a node is lost. No weights cross between the nodes if each has all of them, and
each byte that a node lacks does once.
"""
import functools
import json
import os
import re
import signal
import sys

from nodes_test import STEPS, WORDS, Cluster, by_step, require_restarted, require_same
from support import Failure, Sandbox, finish, main, on_cuda, read_until, require

GPUS = 2  # GPUs of each node: those of one of the job's two engines.
REPLICAS = "trainer.replicas=2"  # Each node has a whole copy of the trainers' weights.
DIVIDED = "trainer.replicas=1"  # The trainers' weights are divided among all ranks, so that each node has a half.


class Span(Cluster):
    """Nodes of which two together have the GPUs of the job."""

    def __init__(self, sandbox, **options):
        super().__init__(sandbox, **{"gpus": GPUS, **options})

    def job(self, *words, weights=REPLICAS):
        environment = dict(self.environment, TANDEM_ADDRESS=self.address)
        return self.sandbox.start("--json", "--out", "out", *WORDS, weights, *words, environment=environment)


def on_one_node(build, *words):
    """Returns the results of each step of a job on one node."""
    sandbox = Sandbox(build)
    code, out, err = sandbox.run("--json", "--out", "out", *WORDS, *words)
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return by_step(out)


@functools.cache
def alone(build):
    """Returns the results of the job whose nodes each have all weights."""
    return on_one_node(build, REPLICAS)


@functools.cache
def alone_divided(build):
    """Returns the results of the job whose nodes each have a part of the weights."""
    return on_one_node(build, DIVIDED)


def require_no_bytes_between_nodes(sandbox):
    """Checks in the trace that every trainer rank has written weights, and none to another node."""
    events = json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))
    plans = [event["args"] for event in events if event["name"] == "update plan"]
    require(plans and all(plan["other_node_bytes"] == 0 and plan["same_gpu_bytes"] > 0 for plan in plans),
            f"plans: {plans}")
    written = [event for event in events if event["ph"] == "X" and event["name"].startswith("write bucket")]
    require({event["tid"] for event in written} == {0, 1, 2, 3}, f"not every trainer rank has written: {written[:4]}")
    require(not any(event["args"]["to"] == "other nodes" for event in written), "weights went to another node")


def require_paired(places):
    """Checks that each engine is on a node of its own with the trainers of the same GPUs."""
    nodes = [{places[name][0] for name in (f"engine/{i}/0", f"engine/{i}/1", f"trainer/{2 * i}",
                                           f"trainer/{2 * i + 1}")} for i in range(2)]
    require(all(len(node) == 1 for node in nodes) and nodes[0] != nodes[1], f"places: {places}")


def learn_on_two_nodes(sandbox, mode, **environment):
    """Runs the job on two nodes with this update.mode. The results must be those on one node."""
    with Span(sandbox, **environment) as cluster:
        process = cluster.job(f"update.mode={mode}")
        before = read_until(process, "step", 1)
        require_paired(cluster.places())
        notes = require_same(sandbox, process, before, alone)
    require(not [note for note in notes if "lost" in note or "restart" in note], f"notes: {notes}")
    require_no_bytes_between_nodes(sandbox)
    sandbox.require_clean()


def job_on_two_nodes_learns_the_same_and_no_weights_cross(sandbox):
    learn_on_two_nodes(sandbox, "donate")


def job_with_encrypted_connections_learns_the_same(sandbox):
    learn_on_two_nodes(sandbox, "copy", TANDEM_TLS="on")


def other_update_modes_learn_the_same(sandbox):
    for mode in ("bucket", "names"):
        learn_on_two_nodes(sandbox, mode)


def engine_on_the_other_node_is_killed_in_an_update_and_comes_back(sandbox):
    marker = sandbox.path / "broken"
    with Span(sandbox, TANDEM_FAILPOINT=f"engine/1/1 engine.stage 3 kill {marker}") as cluster:
        notes = require_same(sandbox, cluster.job("update.stall_timeout_ms=1500"), usual=alone)
    require(marker.is_file(), "engine/1/1 did not pass engine.stage")
    require(any(re.search(r"^engine 1 lost: actor engine/1/1 ", note) for note in notes), f"no loss: {notes}")
    require(any(note.startswith("engine 1 back at version ") for note in notes), f"not back: {notes}")
    require_no_bytes_between_nodes(sandbox)
    sandbox.require_clean()


def killed_trainer_on_the_other_node_restarts_the_job(sandbox):
    with Span(sandbox) as cluster:
        process = cluster.job("job.save_interval=2")
        before = read_until(process, "step", 3)
        os.kill(cluster.places()["trainer/3"][1], signal.SIGKILL)
        require_restarted(sandbox, process, before, alone)
    sandbox.require_clean()


def lost_node_is_replaced_and_the_job_resumes(sandbox):
    with Span(sandbox, names=("first", "second", "third")) as cluster:
        process = cluster.job("job.save_interval=2")
        before = read_until(process, "step", 3)
        process.send_signal(signal.SIGSTOP)  # The job does not end meanwhile.
        names = cluster.node_names()
        used = {names[node] for name, (node, _) in cluster.places().items() if name.startswith("trainer")}
        require(len(used) == 2, f"trainers are on {used}")
        cluster.lose_power((used - {"first"}).pop())  # The job itself runs on the first node.
        process.send_signal(signal.SIGCONT)
        require_restarted(sandbox, process, before, alone)


def require_bytes_between_nodes(sandbox, updates):
    """Checks in the trace that what the plan says crosses between the nodes in each update, and no more."""
    events = json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))
    plans = [event["args"] for event in events if event["name"] == "update plan"]
    require(len(plans) == 1 and plans[0]["other_node_bytes"] > 0, f"plans: {plans}")
    for text, name in (("same GPU", "same_gpu_bytes"), ("other GPUs", "other_gpu_bytes"),
                       ("other nodes", "other_node_bytes")):
        written = sum(event["args"]["bytes"] for event in events if event["ph"] == "X"
                      and event["name"].startswith("write bucket") and event["args"]["to"] == text)
        require(written == updates * plans[0][name], f"{written} bytes to {text} in {updates} updates: {plans}")
    return plans[0]


def learn_divided(sandbox, mode, *words, **environment):
    """Runs the job with weights that are divided among two nodes. The results must be those on one node."""
    with Span(sandbox, **environment) as cluster:
        process = cluster.job(f"update.mode={mode}", *words, weights=DIVIDED)
        before = read_until(process, "step", 1)
        require_paired(cluster.places())
        notes = require_same(sandbox, process, before, alone_divided)
    require(not [note for note in notes if "lost" in note or "restart" in note], f"notes: {notes}")
    sandbox.require_clean()
    return require_bytes_between_nodes(sandbox, STEPS + 1)  # The engines get the first weights, too.


def trainer_divided_among_nodes_learns_the_same(sandbox):
    """Each node wants the other node's half of the model, which crosses once for both of its engine ranks."""
    learn_divided(sandbox, "donate")


def divided_trainer_with_small_buffers_learns_the_same_over_encrypted_connections(sandbox):
    """Each update has several buckets, and each bucket several rounds of exchanges."""
    plan = learn_divided(sandbox, "copy", "update.update_weight_buffer_size=65536", TANDEM_TLS="on")
    require(plan["buckets"] > 10, f"plan: {plan}")


def other_update_modes_of_a_divided_trainer_learn_the_same(sandbox):
    for mode in ("bucket", "names"):
        learn_divided(sandbox, mode)


def engines_of_a_node_share_what_comes_from_the_other_node(sandbox):
    """Two engines of a node want the same half of the model from the other node. It crosses once."""
    words = ("update.mode=copy", "engine.num_engines=4", "engine.rollout_num_gpus_per_engine=1")
    with Span(sandbox) as cluster:
        require_same(sandbox, cluster.job(*words, weights=DIVIDED), usual=lambda build: on_one_node(build, DIVIDED, *words))
    sandbox.require_clean()
    plan = require_bytes_between_nodes(sandbox, STEPS + 1)
    model_bytes = (plan["same_gpu_bytes"] + plan["other_gpu_bytes"]) / 4
    require(plan["other_node_bytes"] <= model_bytes, f"a model of {model_bytes} bytes: {plan}")


def divided_trainer_goes_on_when_an_engine_of_the_other_node_is_killed(sandbox):
    """What the lost engine would get still crosses; the update is tried again without what the others have."""
    marker = sandbox.path / "broken"
    with Span(sandbox, TANDEM_FAILPOINT=f"engine/1/1 engine.stage 3 kill {marker}") as cluster:
        notes = require_same(sandbox, cluster.job("update.mode=copy", "update.update_weight_buffer_size=65536",
                                                  "update.stall_timeout_ms=1500", weights=DIVIDED), usual=alone_divided)
    require(marker.is_file(), "engine/1/1 did not pass engine.stage")
    require(any(re.search(r"^engine 1 lost: actor engine/1/1 ", note) for note in notes), f"no loss: {notes}")
    require(any(note.startswith("engine 1 back at version ") for note in notes), f"not back: {notes}")
    sandbox.require_clean()


def trainer_killed_before_an_exchange_restarts_the_job(sandbox):
    marker = sandbox.path / "broken"
    with Span(sandbox, TANDEM_FAILPOINT=f"trainer/3 trainer.exchange 4 kill {marker}") as cluster:
        notes = require_same(sandbox, cluster.job("job.save_interval=2", weights=DIVIDED), usual=alone_divided)
    require(marker.is_file(), "trainer/3 did not pass trainer.exchange")
    require([note for note in notes if "restart" in note], f"notes: {notes}")
    sandbox.require_clean()


def node_with_one_trainer_rank_serves_an_engine_of_two(sandbox):
    """Each node has an engine of two ranks and one trainer rank, with half of the weights or all of them."""
    words = ("trainer.num_ranks=2", "update.mode=donate", "cluster.gpu_bytes=67108864")
    for weights in (DIVIDED, "trainer.replicas=2"):
        with Span(sandbox) as cluster:
            process = cluster.job(*words, weights=weights)
            before = read_until(process, "step", 1)
            places = cluster.places()
            nodes = [{places[name][0] for name in (f"engine/{i}/0", f"engine/{i}/1", f"trainer/{i}")} for i in range(2)]
            require(all(len(node) == 1 for node in nodes) and nodes[0] != nodes[1], f"places: {places}")
            numbers = on_one_node(sandbox.build, weights, *words)
            require_same(sandbox, process, before, usual=lambda _, numbers=numbers: numbers)
        plan = [event["args"] for event in json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))
                if event["name"] == "update plan"][0]
        require((plan["other_node_bytes"] > 0) == (weights == DIVIDED), f"plan: {plan}")
        sandbox.require_clean()


def engine_larger_than_every_node_is_refused_at_once(sandbox):
    with Span(sandbox) as cluster:
        code, _, err = finish(cluster.job("engine.num_engines=1", "engine.rollout_num_gpus_per_engine=4"))
    require(code == 1 and "engine 0 needs 4 GPUs of one node for its ranks and their trainers, but the nodes have such "
            "GPUs for 0 of 1 engines" in err, f"exit code {code}: {err}")
    sandbox.require_clean()


def learn_on_gpus(sandbox, weights, steps):
    """Runs a job on GPUs of two nodes. The second node's GPUs are on another machine, which the fake library is told
    by the folder's name."""
    words = ("cluster.device=cuda", f"rollout.num_rollout={steps}", "rollout.rollout_batch_size=16")
    with Span(sandbox, device="cuda") as cluster:
        code, out, err = finish(cluster.job(*words, weights=weights))
    require(code == 0, f"exit code {code}: {err}")
    other = Sandbox(sandbox.build)
    code, same, err = other.run("--json", "--out", "out", *WORDS, weights, *words,
                                environment=other.environment(**on_cuda(other)))
    other.destroy()
    require(code == 0, f"exit code {code}: {err}")
    if by_step(out) != by_step(same):
        raise Failure(f"other steps: {by_step(out)}, not {by_step(same)}")
    sandbox.require_clean()


def gpus_of_two_nodes_are_shared_by_trainers_and_engines(sandbox):
    learn_on_gpus(sandbox, REPLICAS, 2)
    require_no_bytes_between_nodes(sandbox)


def weights_cross_between_gpus_of_two_nodes(sandbox):
    learn_on_gpus(sandbox, DIVIDED, 1)
    require_bytes_between_nodes(sandbox, 2)


if __name__ == "__main__":
    sys.exit(main([job_on_two_nodes_learns_the_same_and_no_weights_cross,
                   job_with_encrypted_connections_learns_the_same, other_update_modes_learn_the_same,
                   engine_on_the_other_node_is_killed_in_an_update_and_comes_back,
                   killed_trainer_on_the_other_node_restarts_the_job, lost_node_is_replaced_and_the_job_resumes,
                   trainer_divided_among_nodes_learns_the_same,
                   divided_trainer_with_small_buffers_learns_the_same_over_encrypted_connections,
                   other_update_modes_of_a_divided_trainer_learn_the_same,
                   engines_of_a_node_share_what_comes_from_the_other_node,
                   divided_trainer_goes_on_when_an_engine_of_the_other_node_is_killed,
                   trainer_killed_before_an_exchange_restarts_the_job,
                   node_with_one_trainer_rank_serves_an_engine_of_two,
                   engine_larger_than_every_node_is_refused_at_once,
                   gpus_of_two_nodes_are_shared_by_trainers_and_engines,
                   weights_cross_between_gpus_of_two_nodes]))
