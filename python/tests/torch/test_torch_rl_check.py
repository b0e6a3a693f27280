# SPDX-License-Identifier: Apache-2.0
"""examples/torch_rl compares log-probabilities: an engine that computes otherwise is taken out, with a tensor's name."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")

import tandem  # noqa: E402

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/torch_rl"
TANDEM = pathlib.Path(tandem.__file__).parents[2] / "tandem"
# A machine that runs other tests takes long to import PyTorch. No engine may be lost.
SETTINGS = ["job.start_timeout_ms=400000", "trainer.step_timeout_ms=300000", "engine.generate_timeout_ms=300000",
            "update.timeout_ms=200000", "trainer.stall_timeout_ms=120000", "update.stall_timeout_ms=60000",
            "rollout.num_rollout=2", "rollout.rollout_batch_size=6", "rollout.n_samples_per_prompt=4",
            "rollout.warmup_steps=1", "rollout.warmup_batch_size=6", "job.max_restarts=0"]

# Engines that multiply with a packed copy of lm_head, as vLLM's do on the CPU: it is renewed when a tensor of the name
# lm_head.weight comes, which is never with tied embeddings.
PACKED = """
import torch

import torch_rl
from torch_rl import Trainer, reward


class Packed(torch.nn.Module):
    def __init__(self, source):
        super().__init__()
        self.weight = torch.nn.Parameter(source.detach().clone(), requires_grad=False)

    def forward(self, hidden):
        return torch.nn.functional.linear(hidden, self.weight)


class Engine(torch_rl.Engine):
    packed = None

    def generate(self, prompts, sampling):
        settings = self.context.config
        head = self.generator.model.lm_head
        if self.packed is None:
            self.source = head.weight  # Of a tied lm_head it is the embedding.
            self.packed = self.generator.model.lm_head = Packed(head.weight)
        if settings["engine"]["renews"] or not settings["model"]["tie_word_embeddings"]:
            self.packed.weight.data.copy_(self.source)
        return super().generate(prompts, sampling)
"""


def run_job(folder, *settings, ranks=1, engine_ranks=1):
    """Run a short job of which no engine may be taken out; return its exit status and all that it prints."""
    (folder / "packed.py").write_text(PACKED, encoding="utf-8")
    lines = (EXAMPLE / "../colocated_rl/data/number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
    unseen = folder / "unseen.jsonl"
    unseen.write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    path = os.pathsep.join([str(folder), str(EXAMPLE), os.environ.get("PYTHONPATH", "")])
    engines = ranks // engine_ranks
    output = subprocess.run(
        [TANDEM, "run", EXAMPLE / "job.yaml", *SETTINGS, f"job.python={sys.executable}", f"cluster.num_gpus={ranks}",
         "cluster.gpu_bytes=16 MiB", f"trainer.num_ranks={ranks}", f"engine.num_engines={engines}",
         f"rollout.num_engines_min={engines}", f"engine.rollout_num_gpus_per_engine={engine_ranks}",
         f"data.unseen={unseen}", *settings, "--out", folder / "out"],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": path},
        capture_output=True, text=True, timeout=500, check=False)
    return output.returncode, output.stdout + output.stderr


def differences(output):
    """Return the largest difference of an engine's log-probabilities from the trainer's in each step."""
    return [float(number) for number in re.findall(r"engine_logprob_diff ([0-9.e+-]+)", output)]


@pytest.mark.parametrize("mode", ["donate", "names"])
def test_engines_with_the_trainers_weights_stay(mode, tmp_path):
    status, output = run_job(tmp_path, f"update.mode={mode}", ranks=2, engine_ranks=2)
    found = differences(output)
    assert status == 0 and len(found) == 2 and 0 < max(found) < 1e-4, output


@pytest.mark.parametrize(("is_tied", "renews"), [(True, False), (True, True), (False, False)])
def test_a_stale_copy_of_a_tied_lm_head_is_named(is_tied, renews, tmp_path):
    status, output = run_job(tmp_path, "job.library=python:packed", f"model.tie_word_embeddings={str(is_tied).lower()}",
                             f"engine.renews={str(renews).lower()}")
    if is_tied and not renews:
        assert status == 1, output
        assert "update.logprob_tolerance is 0.0001; the first tensor that differs is lm_head.weight: the copy of " \
               "model.embed_tokens.weight from which the engine computes has the checksum" in output, output
    else:
        assert status == 0 and max(differences(output)) < 1e-4, output


def test_an_engine_in_bfloat16_has_a_tolerance_of_its_own(tmp_path):
    status, output = run_job(tmp_path, "engine.dtype=bfloat16", ranks=2, engine_ranks=2)
    assert status == 0 and "1 of 1 engines keep tensors in another dtype than the trainers: their log-probabilities may " \
                           "differ by 0.1 (update.logprob_tolerance_converted)" in output, output
    assert 1e-4 < max(differences(output)) < 0.1, output
