# SPDX-License-Identifier: Apache-2.0
"""A job's transfer plan, made of the slices of a Megatron model, writes bit for bit what slime's steps gather."""
import os
import pathlib
import subprocess
import sys

import numpy
import pytest

pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("megatron.core", reason="skipped: the Python package megatron-core is missing")

import tandem  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TANDEM = pathlib.Path(tandem.__file__).parents[2] / "tandem"
JOB = """
job: {{name: megatron, seed: 0, library: "python:megatron_job", python: "{python}", max_restarts: 0,
       start_timeout_ms: 500000}}
cluster: {{num_gpus: {ranks}, gpu_bytes: 32 MiB}}
trainer: {{num_ranks: {ranks}, step_timeout_ms: 500000}}
engine: {{num_engines: 2, rollout_num_gpus_per_engine: {half}, generate_timeout_ms: 300000}}
rollout: {{num_rollout: 1, rollout_batch_size: {ranks}, n_samples_per_prompt: 1, rollout_max_prompt_len: 8,
           rollout_max_response_len: 5, warmup_steps: 0}}
update: {{mode: {mode}, update_weight_buffer_size: 256 KiB, timeout_ms: 100000}}
data: {{train: data.jsonl, unseen: data.jsonl}}
model: {{case: {case}}}
"""


@pytest.mark.parametrize("case, ranks, mode", [("dense", 4, "donate"), ("moe", 4, "copy"), ("moe-etp2", 8, "donate")])
def test_served_weights_are_bit_equal_to_slimes(case, ranks, mode, tmp_path):
    (tmp_path / "data.jsonl").write_text('{"prompt": "1", "answer": "1"}\n' * ranks, encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(python=sys.executable, ranks=ranks, half=ranks // 2, mode=mode, case=case),
                   encoding="utf-8")
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1",
                   "MEGATRON_JOB_FOLDER": str(tmp_path)}
    output = subprocess.run([TANDEM, "run", job, "--out", tmp_path / "out"], env=environment, cwd=tmp_path,
                            capture_output=True, text=True, timeout=580, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    gathered, count = {}, 0
    for rank in range(ranks):
        gathered.update(numpy.load(tmp_path / f"gathered{rank}.npz"))
    for engine in range(2):
        served = {}
        for rank in range(ranks // 2):
            served.update(numpy.load(tmp_path / f"served{engine}-{rank}.npz"))
        assert sorted(served) == sorted(gathered)
        for name, value in gathered.items():
            assert served[name].tobytes() == value.tobytes(), f"{name} of engine {engine}"
            count += value.size
    assert count > 100000
