# SPDX-License-Identifier: Apache-2.0
"""A job whose engine is vLLM compares log-probabilities, and its KV cache takes turns with the trainers' memory."""
import json
import re

import pytest
from job_runner import metric, run_job

TOLERANCE = "update.logprob_tolerance=1.0e-4"


@pytest.mark.parametrize(("is_tied", "is_stale", "ranks"), [
    (True, True, 1), (True, False, 1), (False, True, 1), (True, True, 2), (True, False, 2)])
def test_a_stale_copy_of_a_tied_lm_head_is_named(is_tied, is_stale, ranks, tmp_path):
    status, output = run_job(tmp_path, TOLERANCE, f"model.is_tied={str(is_tied).lower()}",
                             f"engine.is_stale={str(is_stale).lower()}", ranks=ranks)
    if is_tied and is_stale:
        assert status == 1, output
        assert "update.logprob_tolerance is 0.0001; the first tensor that differs is lm_head.weight: the copy of " \
               "model.embed_tokens.weight from which the engine computes has the checksum" in output, output
    else:
        assert status == 0, output
        assert 0 < max(metric(output, "engine_logprob_diff")) < 1e-4, output


def test_an_engine_in_bfloat16_has_a_tolerance_of_its_own(tmp_path):
    status, output = run_job(tmp_path, TOLERANCE, "engine.dtype=bfloat16", "update.logprob_tolerance_converted=1")
    assert status == 0, output
    assert "1 of 1 engines keep tensors in another dtype than the trainers: their log-probabilities may differ by 1 " \
           "(update.logprob_tolerance_converted)" in output, output
    assert 1e-4 < max(metric(output, "engine_logprob_diff")) < 1, output


# The trainer needs 4 MiB, and the engine 67.
KV_CACHE = ["cluster.gpu_bytes=70 MiB", f"engine.kv_cache_bytes={64 << 20}"]


def test_the_kv_cache_takes_turns_with_the_trainers_memory(tmp_path):
    status, output = run_job(tmp_path, TOLERANCE, *KV_CACHE)
    assert status == 0, output
    assert "the device reports" not in output, output
    events = json.loads((tmp_path / "out/trace.json").read_text(encoding="utf-8"))
    for tag in ("kv_cache", "vllm_weights"):
        for change in ("resume", "pause"):
            assert sum(event["name"] == f"{change} {tag}" for event in events) >= 3, (change, tag)


def test_a_kv_cache_that_is_larger_than_declared_is_reported(tmp_path):
    status, output = run_job(tmp_path, TOLERANCE, *KV_CACHE, "cluster.gpu_bytes=128 MiB",
                             "engine.declared_kv_cache_bytes=8388608")
    assert status == 0, output
    found = re.search(r"engine/0/0 declares 8.0 MiB of kv_cache, and the device reports ([0-9.]+) MiB", output)
    assert found and 56 < float(found[1]) < 72, output
