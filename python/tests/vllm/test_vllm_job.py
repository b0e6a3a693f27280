# SPDX-License-Identifier: Apache-2.0
"""A job with an engine of vLLM of two tensor-parallel ranks: after each update it has the trainers' weights."""
import re
import sys

import pytest
from job_runner import HERE, START_SECONDS, metric, path_with, run_job, run_tandem

EXAMPLE = HERE.parents[2] / "examples/torch_rl"


@pytest.mark.parametrize("mode", ["donate", "names"])
def test_the_engine_has_the_trainers_weights(mode, tmp_path):
    status, output = run_job(tmp_path, f"update.mode={mode}", ranks=2)
    assert status == 0, output
    differences = metric(output, "logprob_diff_max")
    assert len(differences) == 2 and 0 < max(differences) < 1e-4, output


def _run_example(out, *settings, more=None):
    """Run a short job of the example with engines of two ranks each; return what it prints."""
    lines = (EXAMPLE / "../colocated_rl/data/number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
    unseen = out.parent / "unseen.jsonl"
    unseen.write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    timeouts = [f"job.start_timeout_ms={START_SECONDS * 1000}", "trainer.step_timeout_ms=300000",
                "engine.generate_timeout_ms=300000", "update.timeout_ms=200000", "trainer.stall_timeout_ms=120000",
                "update.stall_timeout_ms=60000"]
    short = ["rollout.rollout_batch_size=8", "rollout.n_samples_per_prompt=4", "rollout.warmup_steps=1",
             "rollout.warmup_batch_size=8"]
    status, output = run_tandem(EXAMPLE / "job.yaml", "job.library=python:torch_rl_vllm",
                                f"job.python={sys.executable}", f"data.unseen={unseen}", "cluster.gpu_bytes=38 MiB",
                                *timeouts, *short, *settings, out=out, more=more)
    assert status == 0, output
    return output


def test_the_example_runs_with_vllm(tmp_path):
    output = _run_example(tmp_path / "out", "cluster.num_gpus=2", "trainer.num_ranks=2", "engine.num_engines=1",
                          "rollout.num_rollout=2")
    differences = metric(output, "logprob_diff_max")
    assert len(differences) == 2 and 0 < max(differences) < 1e-4, output


# In the first rollout a tensor-parallel worker dies. The third step waits until its successor is there, so that the
# engine takes part again; in the fifth step a trainer rank dies.
KILLED = """
import os
import pathlib
import signal
import time

import torch_rl_vllm
from torch_rl_vllm import reward

FOLDER = pathlib.Path(os.environ["KILLED_FOLDER"])
WAIT_SECONDS = 280


def die_once(name):
    try:
        os.close(os.open(FOLDER / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Engine(torch_rl_vllm.Engine):
    def __init__(self, context):
        super().__init__(context)
        if (FOLDER / "engine").exists() and context.engine == 1 and context.rank == 1:
            (FOLDER / "successor").touch()

    def generate(self, prompts, sampling):
        if self.context.engine == 1 and self.context.rank == 1 and sampling.temperature > 0:
            die_once("engine")
        return super().generate(prompts, sampling)


class Trainer(torch_rl_vllm.Trainer):
    def step(self, batch):
        end = time.monotonic() + WAIT_SECONDS
        while batch.step == 3 and not (FOLDER / "successor").exists() and time.monotonic() < end:
            time.sleep(0.1)
        if self.context.rank == 2 and batch.step == 5 and not batch.supervised:
            die_once("trainer")
        return super().step(batch)
"""


def _steps(output):
    """Return {number of a step: (its reward, its grad_norm)} of all steps; repeated ones count once."""
    found = re.findall(r"^step +(\d+)/6  reward ([0-9.]+).* grad_norm ([0-9.e+-]+)", output, re.MULTILINE)
    return {int(step): (reward, float(norm)) for step, reward, norm in found}


def test_killed_ranks_are_replaced_and_the_steps_stay_the_same(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    found = {}
    for name, marks in (("undisturbed", ("engine", "successor", "trainer")), ("disturbed", ())):
        folder = tmp_path / f"{name}-marks"
        folder.mkdir()
        for mark in marks:
            (folder / mark).touch()  # As if they had died already.
        more = {"KILLED_FOLDER": str(folder), "PYTHONPATH": path_with(tmp_path, EXAMPLE)}
        found[name] = _run_example(tmp_path / name, "job.library=python:killed", "rollout.num_rollout=6",
                                   "job.save_interval=2", more=more)
    out = found["disturbed"]
    assert re.search(r"engine 1 lost: actor engine/1/1 died: .*signal 9 \(killed\).*; 1 of 2 goes on", out), out
    assert re.search(r"engine 1 back at version \d+", out), out
    assert re.search(r"restart 1 of 3 after step 4, because .*trainer/2 died: .*signal 9 \(killed\)", out), out
    assert re.search(r"resuming \S+ after step 4; steps repeated: 0", out), out
    expected, steps = _steps(found["undisturbed"]), _steps(found["disturbed"])
    assert sorted(steps) == sorted(expected) == [1, 2, 3, 4, 5, 6], out
    for number, (reward, norm) in expected.items():
        # Answers may be computed in batches of another size, so that the last bits of their log-probabilities differ.
        assert steps[number][0] == reward and steps[number][1] == pytest.approx(norm, rel=1e-2), out
    assert max(metric(out, "logprob_diff_max")) < 1e-4, out
