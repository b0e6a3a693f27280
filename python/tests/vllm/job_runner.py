# SPDX-License-Identifier: Apache-2.0
"""How tests of this folder run the job of vllm_job.py, and what they read of its output."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

# A test file that imports this one is skipped as a whole where a package is missing.
pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")
pytest.importorskip("vllm", reason="skipped: the Python package vllm is missing")

import tandem  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TANDEM = pathlib.Path(tandem.__file__).parents[2] / "tandem"
# A machine that runs other tests takes minutes to import vLLM. The job fails before RUN_SECONDS, and says why.
START_SECONDS = 900
RUN_SECONDS = 1500
# One engine of as many ranks as the trainers have, each on a virtual GPU. It may not be lost.
JOB = """
job: {{name: vllm, seed: 0, library: "python:vllm_job", python: "{python}", max_restarts: 0, start_timeout_ms: {start}}}
cluster: {{num_gpus: {ranks}, gpu_bytes: 32 MiB}}
trainer: {{num_ranks: {ranks}, step_timeout_ms: 300000}}
engine: {{num_engines: 1, rollout_num_gpus_per_engine: {ranks}, generate_timeout_ms: 300000, kv_cache_bytes: 8388608,
          vllm: {{max_model_len: 64, max_num_seqs: 16}}}}
rollout: {{num_rollout: 2, rollout_batch_size: 4, n_samples_per_prompt: 4, rollout_max_prompt_len: 8,
           rollout_max_response_len: 5, warmup_steps: 1, warmup_batch_size: 4, num_engines_min: 1}}
update: {{update_weight_buffer_size: 64 KiB, timeout_ms: 100000}}
data: {{train: data.jsonl, unseen: data.jsonl}}
"""


def run_tandem(job, *settings, out, more=None):
    """Run `tandem run` in the folder that has its results; return its exit status and all that it prints.

    more are variables of its environment.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **(more or {})}
    output = subprocess.run([TANDEM, "run", job, *settings, "--out", out], env=environment, cwd=out.parent,
                            capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    return output.returncode, output.stdout + output.stderr


def path_with(*folders):
    """Return PYTHONPATH with folders in front of it."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def run_job(tmp_path, *settings, ranks=1):
    """Run the job of vllm_job.py in a folder, and return what run_tandem() does."""
    (tmp_path / "data.jsonl").write_text("".join(f'{{"prompt": "{number}", "answer": "{number}"}}\n'
                                                 for number in (12, 345, 6, 7890)), encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(python=sys.executable, ranks=ranks, start=START_SECONDS * 1000), encoding="utf-8")
    return run_tandem(job, *settings, out=tmp_path / "out", more={"PYTHONPATH": path_with(HERE)})


def metric(output, name):
    """Return the numbers of a metric in the lines of steps; the warm-up is not among them."""
    return [float(number) for number in re.findall(rf"^step .*\b{name} ([0-9.e+-]+)", output, re.MULTILINE)]
