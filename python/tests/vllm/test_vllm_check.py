# SPDX-License-Identifier: Apache-2.0
"""A job whose engine is vLLM compares log-probabilities, and its KV cache takes turns with the trainers' memory."""
import json
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
# A machine that runs other tests takes long to import vLLM. The only engine may not be lost.
JOB = """
job: {{name: vllm, seed: 0, library: "python:vllm_job", python: "{python}", max_restarts: 0, start_timeout_ms: 500000}}
cluster: {{num_gpus: 1, gpu_bytes: 32 MiB}}
trainer: {{num_ranks: 1, step_timeout_ms: 300000}}
engine: {{num_engines: 1, rollout_num_gpus_per_engine: 1, generate_timeout_ms: 300000, kv_cache_bytes: 8388608,
          vllm: {{max_model_len: 64, max_num_seqs: 16}}}}
rollout: {{num_rollout: 2, rollout_batch_size: 4, n_samples_per_prompt: 4, rollout_max_prompt_len: 8,
           rollout_max_response_len: 5, warmup_steps: 1, warmup_batch_size: 4, num_engines_min: 1}}
update: {{update_weight_buffer_size: 64 KiB, timeout_ms: 100000, logprob_tolerance: 1.0e-4}}
data: {{train: data.jsonl, unseen: data.jsonl}}
"""


def run_job(tmp_path, *settings):
    """Run the job; return its exit status and all that it prints."""
    (tmp_path / "data.jsonl").write_text("".join(f'{{"prompt": "{number}", "answer": "{number}"}}\n'
                                                 for number in (12, 345, 6, 7890)), encoding="utf-8")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(python=sys.executable), encoding="utf-8")
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    output = subprocess.run([TANDEM, "run", job, *settings, "--out", tmp_path / "out"], env=environment, cwd=tmp_path,
                            capture_output=True, text=True, timeout=580, check=False)
    return output.returncode, output.stdout + output.stderr


def differences(output):
    """Return the largest difference of the engine's log-probabilities from the trainer's in each step."""
    return [float(number) for number in re.findall(r"engine_logprob_diff ([0-9.e+-]+)", output)]


@pytest.mark.parametrize(("is_tied", "is_stale"), [(True, True), (True, False), (False, True)])
def test_a_stale_copy_of_a_tied_lm_head_is_named(is_tied, is_stale, tmp_path):
    status, output = run_job(tmp_path, f"model.is_tied={str(is_tied).lower()}",
                     f"engine.is_stale={str(is_stale).lower()}")
    if is_tied and is_stale:
        assert status == 1, output
        assert "update.logprob_tolerance is 0.0001; the first tensor that differs is lm_head.weight: the copy of " \
               "model.embed_tokens.weight from which the engine computes has the checksum" in output, output
    else:
        assert status == 0, output
        assert 0 < max(differences(output)) < 1e-4, output


def test_an_engine_in_bfloat16_has_a_tolerance_of_its_own(tmp_path):
    status, output = run_job(tmp_path, "engine.dtype=bfloat16", "update.logprob_tolerance_converted=1")
    assert status == 0, output
    assert "1 of 1 engines keep tensors in another dtype than the trainers: their log-probabilities may differ by 1 " \
           "(update.logprob_tolerance_converted)" in output, output
    assert 1e-4 < max(differences(output)) < 1, output


# The trainer needs 4 MiB, and the engine 67.
KV_CACHE = ["cluster.gpu_bytes=70 MiB", f"engine.kv_cache_bytes={64 << 20}"]


def test_the_kv_cache_takes_turns_with_the_trainers_memory(tmp_path):
    status, output = run_job(tmp_path, *KV_CACHE)
    assert status == 0, output
    assert "the device reports" not in output, output
    events = json.loads((tmp_path / "out/trace.json").read_text(encoding="utf-8"))
    for tag in ("kv_cache", "vllm_weights"):
        for change in ("resume", "pause"):
            assert sum(event["name"] == f"{change} {tag}" for event in events) >= 3, (change, tag)


def test_a_kv_cache_that_is_larger_than_declared_is_reported(tmp_path):
    status, output = run_job(tmp_path, *KV_CACHE, "cluster.gpu_bytes=128 MiB", "engine.declared_kv_cache_bytes=8388608")
    assert status == 0, output
    found = re.search(r"engine/0/0 declares 8.0 MiB of kv_cache, and the device reports ([0-9.]+) MiB", output)
    assert found and 56 < float(found[1]) < 72, output
