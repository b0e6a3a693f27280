# SPDX-License-Identifier: Apache-2.0
"""examples/torch_rl as a job: after each update the engine has the trainer's weights, and killed ranks are replaced."""
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
            "update.timeout_ms=200000", "trainer.stall_timeout_ms=120000", "update.stall_timeout_ms=60000",
            "rollout.num_rollout=2", "rollout.rollout_batch_size=6", "rollout.n_samples_per_prompt=4",
            "rollout.warmup_steps=1", "rollout.warmup_batch_size=6"]


def run_job(out, *settings, ranks, engine_ranks=1, more=None):
    """Run a short job whose engines have that many ranks each; return what it prints."""
    lines = (EXAMPLE / "../colocated_rl/data/number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
    unseen = out.parent / "unseen.jsonl"
    unseen.write_text("\n".join(lines[:8]) + "\n", encoding="utf-8")
    output = subprocess.run(
        [TANDEM, "run", EXAMPLE / "job.yaml", *SETTINGS, f"job.python={sys.executable}", f"cluster.num_gpus={ranks}",
         f"trainer.num_ranks={ranks}", f"engine.num_engines={ranks // engine_ranks}",
         f"engine.rollout_num_gpus_per_engine={engine_ranks}", f"data.unseen={unseen}", *settings, "--out", out],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **(more or {})},
        capture_output=True, text=True, timeout=700, check=False)
    assert output.returncode == 0, output.stdout + output.stderr
    return output.stdout


def check_trace(path, engines, updates):
    """Assert that each chunk of each update was gathered once for each engine, and all bytes of the plan arrived."""
    events = json.loads(path.read_text(encoding="utf-8"))
    plan = next(event["args"] for event in events if event["name"] == "update plan")

    def bytes_of(name):
        return [event["args"]["bytes"] for event in events if re.fullmatch(name, event["name"])]

    gathered = bytes_of("gather bucket [0-9]+")
    chunks = {event["name"] for event in events if event["name"].startswith("write bucket ")}
    assert chunks == {f"write bucket {index}" for index in range(plan["buckets"])}
    assert len(gathered) == plan["buckets"] * engines * updates and min(gathered) > 0
    # The engines' calls have the gathered bytes and no others.
    assert sorted(bytes_of("stage gathered")) == sorted(gathered)
    planned = (plan["same_gpu_bytes"] + plan["other_gpu_bytes"]) * updates
    assert sum(bytes_of("write bucket [0-9]+")) == sum(bytes_of("stage bucket")) == planned > 0


# With 3 ranks the shards have different numbers of rows: of the four elements of q_norm the last rank has none.
@pytest.mark.parametrize("mode, ranks, engine_ranks, more", [
    ("donate", 3, 1, ["model.head_dim=4"]), ("donate", 2, 2, []), ("names", 2, 2, [])])
def test_engines_have_the_trainers_weights(mode, ranks, engine_ranks, more, tmp_path):
    output = run_job(tmp_path / "out", f"update.mode={mode}", *more, ranks=ranks, engine_ranks=engine_ranks)
    differences = [float(number) for number in re.findall(r"logprob_diff_max ([0-9.e+-]+)", output)]
    assert len(differences) == 2 and max(differences) < 1e-4, output
    check_trace(tmp_path / "out/trace.json", ranks // engine_ranks, updates=3)  # One follows the supervised step.
    model = transformers.Qwen3ForCausalLM.from_pretrained(tmp_path / "out/hf")
    assert model.config.num_hidden_layers == 2 and not model.config.tie_word_embeddings
    assert json.loads((tmp_path / "out/hf/characters.json").read_text(encoding="utf-8")) == "0123456789<>"


KILLED = """
import os
import signal

import torch_rl
from torch_rl import reward


def die_once(name):
    try:
        os.close(os.open(os.environ["KILLED_FOLDER"] + "/" + name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class Engine(torch_rl.Engine):
    def generate(self, prompts, sampling):
        if self.context.engine == 1 and sampling.temperature > 0:
            die_once("engine")
        return super().generate(prompts, sampling)


class Trainer(torch_rl.Trainer):
    def step(self, batch):
        if self.context.rank == 1 and batch.step == 2 and not batch.supervised:
            die_once("trainer")
        return super().step(batch)
"""


def test_a_killed_engine_is_left_out_and_a_killed_trainer_restarts_the_job(tmp_path):
    (tmp_path / "killed.py").write_text(KILLED, encoding="utf-8")
    found = {}
    for name in ("undisturbed", "disturbed"):
        if name == "undisturbed":
            for victim in ("engine", "trainer"):
                (tmp_path / victim).touch()  # They have died already.
        else:
            for victim in ("engine", "trainer"):
                (tmp_path / victim).unlink()
        found[name] = run_job(
            tmp_path / name, "job.library=python:killed", "job.save_interval=1", ranks=2,
            more={"KILLED_FOLDER": str(tmp_path), "PYTHONPATH": os.pathsep.join(
                [str(tmp_path), str(EXAMPLE), os.environ.get("PYTHONPATH", "")])})
    output = found["disturbed"]
    assert re.search(r"engine 1 lost: actor engine/1/0 died: .*signal 9 \(killed\); 1 of 2 goes on", output), output
    assert re.search(r"restart 1 of 3 after step 1, .*trainer/1 died: .*signal 9 \(killed\)", output), output
    steps = [dict(re.findall(r"^step +(\d+)/2  reward ([0-9.]+)", text, re.MULTILINE)) for text in found.values()]
    assert steps[0] == steps[1] and len(steps[0]) == 2, output
    # Answers may be computed in batches of another size, so that the last bits of their log-probabilities differ.
    norms = [re.findall(r"grad_norm ([0-9.e+-]+)", text)[-1] for text in found.values()]
    assert float(norms[0]) == pytest.approx(float(norms[1]), rel=1e-2), output
