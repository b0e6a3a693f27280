#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""many_gpus_test.py - a job with more GPUs and engines than a word has bits runs on several nodes, and goes on when an
engine with a high number is lost.
"""
import json
import os
import re
import signal
import sys

from nodes_test import Cluster
from support import JOB, finish, main, notes_of, read_until, require, steps_of

GPUS = 72  # More than 64; a batch of as many prompts divides over the ranks.
GPUS_OF_A_NODE = 16
NODES = ("first", "second", "third", "fourth", "fifth")
STEPS = 3
LOST = 70  # Engine that is killed.
# A model as small as possible, so that processes and their connections are what is tested.
SMALL = ["model.hidden_size=32", "model.num_hidden_layers=1", "model.num_attention_heads=4",
         "model.num_key_value_heads=2", "model.head_dim=8", "model.intermediate_size=64",
         "engine.max_running_requests=16", "engine.max_total_tokens=512", "trainer.max_tokens_per_gpu=64"]
WORDS = [*SMALL, f"cluster.num_gpus={GPUS}", f"trainer.num_ranks={GPUS}", f"engine.num_engines={GPUS}",
         "engine.rollout_num_gpus_per_engine=1", f"rollout.rollout_batch_size={GPUS}",
         "rollout.n_samples_per_prompt=1", f"rollout.num_rollout={STEPS}", "rollout.warmup_steps=1",
         f"rollout.warmup_batch_size={GPUS}", "job.start_timeout_ms=300000", "trainer.step_timeout_ms=300000",
         "trainer.stall_timeout_ms=60000", "engine.generate_timeout_ms=300000", "update.timeout_ms=300000",
         "update.stall_timeout_ms=60000"]


class Machines(Cluster):
    """Nodes with 16 GPUs each, which together have those of the job."""

    def __init__(self, sandbox, **options):
        super().__init__(sandbox, names=NODES, gpus=GPUS_OF_A_NODE, **options)

    def job(self, *words):
        environment = dict(self.environment, TANDEM_ADDRESS=self.address)
        return self.sandbox.start("--json", "--out", "out", *WORDS, *words, environment=environment)


def plan_names_every_gpu(sandbox):
    code, out, err = finish(sandbox.tandem("plan", JOB, f"job.library={sandbox.library()}", *WORDS, "--json"))
    require(code == 0, f"exit code {code}: {err}")
    plan = json.loads(out)
    require(plan["fits"] and all(len(moment["gpus"]) == GPUS for moment in plan["moments"]), f"plan: {out[:400]}")


def engine_with_a_high_number_is_lost_and_comes_back(sandbox):
    with Machines(sandbox) as cluster:
        process = cluster.job()
        before = read_until(process, "step", 1)
        places = cluster.places()
        require(len({node for node, _ in places.values()}) == len(NODES), "not on all nodes")
        require(len([name for name in places if re.fullmatch(r"trainer/\d+|engine/\d+/0", name)]) == 2 * GPUS,
                f"{len(places)} actors")
        os.kill(places[f"engine/{LOST}/0"][1], signal.SIGKILL)
        code, out, err = finish(process)
    require(code == 0, f"exit code {code}: {err}")
    steps, notes = steps_of(before + out), notes_of(before + out)
    require([step["step"] for step in steps] == list(range(1, STEPS + 1)), f"steps: {steps}")
    lost = [note for note in notes if " lost: " in note]
    require(len(lost) == 1 and lost[0].startswith(f"engine {LOST} lost: "), f"lost: {lost}")
    require(any(note.startswith(f"engine {LOST} back at version ") for note in notes), f"not back: {notes}")
    require(not any(note.startswith("restart ") for note in notes), f"a restart: {notes}")
    sandbox.require_clean()


if __name__ == "__main__":
    sys.exit(main([plan_names_every_gpu, engine_with_a_high_number_is_lost_and_comes_back]))
