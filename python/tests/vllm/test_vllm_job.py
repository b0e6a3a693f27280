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
job: {{name: vllm, seed: 0, library: "python:vllm_job", python: "{python}", max_restarts: 0, start_timeout_ms: 500000}}
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
                            capture_output=True, text=True, timeout=580, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    differences = _differences(output)
    assert len(differences) == 2 and 0 < max(differences) < 1e-4, output.stdout


def test_the_example_runs_with_vllm(tmp_path):
    example = HERE.parents[2] / "examples/torch_rl"
    lines = (example / "../colocated_rl/data/number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    settings = ["job.library=python:torch_rl_vllm", f"job.python={sys.executable}", "job.start_timeout_ms=500000",
                "cluster.num_gpus=2", "cluster.gpu_bytes=16 MiB", "trainer.num_ranks=2", "trainer.step_timeout_ms=300000",
                "engine.num_engines=1", "engine.rollout_num_gpus_per_engine=2", "engine.generate_timeout_ms=300000",
                "update.timeout_ms=200000", "rollout.num_rollout=2", "rollout.rollout_batch_size=6",
                "rollout.n_samples_per_prompt=4", "rollout.warmup_steps=1", "rollout.warmup_batch_size=6",
                f"data.unseen={unseen}"]
    output = subprocess.run([TANDEM, "run", example / "job.yaml", *settings, "--out", tmp_path / "out"],
                            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}, cwd=tmp_path, capture_output=True,
                            text=True, timeout=580, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    differences = _differences(output)
    assert len(differences) == 2 and 0 < max(differences) < 1e-4, output.stdout
