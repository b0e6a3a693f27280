# SPDX-License-Identifier: Apache-2.0
"""A job with an engine of vLLM of two tensor-parallel ranks: after each update it has the trainers' weights."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")
pytest.importorskip("vllm", reason="skipped: the Python package vllm is missing")

import tandem  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TANDEM = pathlib.Path(tandem.__file__).parents[2] / "tandem"
# A machine that runs other tests takes long to import vLLM in two processes.
JOB = """
job: {{name: vllm, seed: 0, library: "python:vllm_job", python: "{python}", max_restarts: 0, start_timeout_ms: 900000}}
cluster: {{num_gpus: 2, gpu_bytes: 32 MiB}}
trainer: {{num_ranks: 2, step_timeout_ms: 300000}}
engine: {{num_engines: 1, rollout_num_gpus_per_engine: 2, generate_timeout_ms: 300000, kv_cache_bytes: 8388608,
          vllm: {{max_model_len: 64, max_num_seqs: 16}}}}
rollout: {{num_rollout: 2, rollout_batch_size: 4, n_samples_per_prompt: 4, rollout_max_prompt_len: 8,
           rollout_max_response_len: 5, warmup_steps: 1, warmup_batch_size: 4}}
update: {{mode: {mode}, update_weight_buffer_size: 64 KiB, timeout_ms: 100000}}
data: {{train: data.jsonl, unseen: data.jsonl}}
"""


def _differences(output):
    """Return the metric logprob_diff_max of the steps of reinforcement."""
    return [float(number) for number in re.findall(r"step .* logprob_diff_max ([0-9.e+-]+)", output.stdout)]


@pytest.mark.parametrize("mode", ["donate", "names"])
def test_the_engine_has_the_trainers_weights(mode, tmp_path):
    (tmp_path / "data.jsonl").write_text("".join(f'{{"prompt": "{number}", "answer": "{number}"}}\n'
                                                 for number in (12, 345, 6, 7890)), encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(python=sys.executable, mode=mode), encoding="utf-8")
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    output = subprocess.run([TANDEM, "run", job, "--out", tmp_path / "out"], env=environment, cwd=tmp_path,
                            capture_output=True, text=True, timeout=1500, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    differences = _differences(output)
    assert len(differences) == 2 and 0 < max(differences) < 1e-4, output.stdout


EXAMPLE = HERE.parents[2] / "examples/torch_rl"


def _run_example(out, *settings, more=None):
    """Run a short job of the example with engines of two ranks each; return what it prints."""
    lines = (EXAMPLE / "../colocated_rl/data/number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
    unseen = out.parent / "unseen.jsonl"
    unseen.write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    timeouts = ["job.start_timeout_ms=900000", "trainer.step_timeout_ms=300000", "engine.generate_timeout_ms=300000",
                "update.timeout_ms=200000", "trainer.stall_timeout_ms=120000", "update.stall_timeout_ms=60000"]
    short = ["rollout.rollout_batch_size=8", "rollout.n_samples_per_prompt=4", "rollout.warmup_steps=1",
             "rollout.warmup_batch_size=8"]
    output = subprocess.run([TANDEM, "run", EXAMPLE / "job.yaml", "job.library=python:torch_rl_vllm",
                             f"job.python={sys.executable}", f"data.unseen={unseen}", "cluster.gpu_bytes=38 MiB",
                             *timeouts, *short, *settings, "--out", out],
                            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(more or {})},
                            cwd=out.parent, capture_output=True, text=True, timeout=1500, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    return output


def test_the_example_runs_with_vllm(tmp_path):
    output = _run_example(tmp_path / "out", "cluster.num_gpus=2", "trainer.num_ranks=2", "engine.num_engines=1",
                          "rollout.num_rollout=2")
    differences = _differences(output)
    assert len(differences) == 2 and 0 < max(differences) < 1e-4, output.stdout


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
    found = re.findall(r"^step +(\d+)/6  reward ([0-9.]+).* grad_norm ([0-9.e+-]+)", output.stdout, re.MULTILINE)
    return {int(step): (reward, float(norm)) for step, reward, norm in found}


def test_killed_ranks_are_replaced_and_the_steps_stay_the_same(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), str(EXAMPLE), *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {}
    for name, marks in (("undisturbed", ("engine", "successor", "trainer")), ("disturbed", ())):
        folder = tmp_path / f"{name}-marks"
        folder.mkdir()
        for mark in marks:
            (folder / mark).touch()  # As if they had died already.
        found[name] = _run_example(tmp_path / name, "job.library=python:killed", "rollout.num_rollout=6",
                                   "job.save_interval=2", more={"KILLED_FOLDER": str(folder), "PYTHONPATH": path})
    out = found["disturbed"].stdout
    assert re.search(r"engine 1 lost: actor engine/1/1 died: .*signal 9 \(killed\).*; 1 of 2 goes on", out), out
    assert re.search(r"engine 1 back at version \d+", out), out
    assert re.search(r"restart 1 of 3 after step 4, because .*trainer/2 died: .*signal 9 \(killed\)", out), out
    assert re.search(r"resuming \S+ after step 4; steps repeated: 0", out), out
    expected, steps = _steps(found["undisturbed"]), _steps(found["disturbed"])
    assert sorted(steps) == sorted(expected) == [1, 2, 3, 4, 5, 6], out
    for number, (reward, norm) in expected.items():
        # Answers may be computed in batches of another size, so that the last bits of their log-probabilities differ.
        assert steps[number][0] == reward and steps[number][1] == pytest.approx(norm, rel=1e-2), out
    assert max(_differences(found["disturbed"])) < 1e-4, out
