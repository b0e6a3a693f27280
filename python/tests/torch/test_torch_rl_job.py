# SPDX-License-Identifier: Apache-2.0
"""examples/torch_rl as a job: after each update the engine has the trainer's weights."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
transformers = pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")

import tandem  # noqa: E402

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples/torch_rl"
TANDEM = pathlib.Path(tandem.__file__).parents[2] / "tandem"
# A machine that runs other tests takes long to import PyTorch in six processes.
SETTINGS = ["job.start_timeout_ms=400000", "trainer.step_timeout_ms=300000", "engine.generate_timeout_ms=300000",
            "update.timeout_ms=200000", "rollout.num_rollout=2", "rollout.rollout_batch_size=6",
            "rollout.n_samples_per_prompt=4", "rollout.warmup_steps=1", "rollout.warmup_batch_size=6"]


# With 3 ranks the shards have different numbers of rows.
@pytest.mark.parametrize("mode, ranks", [("donate", 3), ("names", 2)])
def test_engines_have_the_trainers_weights(mode, ranks, tmp_path):
    lines = (EXAMPLE / "../colocated_rl/data/number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
    unseen = tmp_path / "unseen.jsonl"
    unseen.write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    output = subprocess.run(
        [TANDEM, "run", EXAMPLE / "job.yaml", *SETTINGS, f"job.python={sys.executable}", f"update.mode={mode}",
         f"cluster.num_gpus={ranks}", f"trainer.num_ranks={ranks}", f"engine.num_engines={ranks}",
         f"data.unseen={unseen}", "--out", tmp_path / "out"],
        env=environment, capture_output=True, text=True, timeout=550, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    differences = [float(number) for number in re.findall(r"logprob_diff_max ([0-9.e+-]+)", output.stdout)]
    assert len(differences) == 2 and max(differences) < 1e-4, output.stdout
    model = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "out/hf")
    assert model.config.num_hidden_layers == 2 and not model.config.tie_word_embeddings
    assert json.loads((tmp_path / "out/hf/characters.json").read_text(encoding="utf-8")) == "0123456789<>"
