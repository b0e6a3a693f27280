# SPDX-License-Identifier: Apache-2.0
"""examples/torch_rl on two nodes: trainers on one, engines on the other, which lacks the job's files."""
import json
import pathlib
import re
import shutil
import sys

import pytest

torch = pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
transformers = pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from two_nodes import TwoNodes  # noqa: E402

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "torch_rl"
DATA = EXAMPLE.parent / "colocated_rl" / "data"
GPUS = 2  # GPUs of each node: those of the trainers, or of the engines.
STEPS = 2
# A machine that runs other tests takes long to import PyTorch in four processes.
SETTINGS = ["job.start_timeout_ms=400000", "trainer.step_timeout_ms=300000", "engine.generate_timeout_ms=300000",
            "update.timeout_ms=200000", "trainer.stall_timeout_ms=120000", "update.stall_timeout_ms=60000",
            f"rollout.num_rollout={STEPS}", "rollout.rollout_batch_size=8", "rollout.n_samples_per_prompt=8",
            "rollout.warmup_steps=30", "rollout.warmup_batch_size=32", "trainer.warmup_lr=1e-2",  # Else rewards are 0.
            f"trainer.num_ranks={GPUS}",
            f"engine.num_engines={GPUS}", "engine.rollout_num_gpus_per_engine=1", "job.library=python:noted",
            f"job.python={sys.executable}", f"data.train={DATA / 'number_sorting.train.jsonl'}"]
APART = ["engine.colocate=false", f"cluster.num_gpus={2 * GPUS}", "cluster.gpu_bytes=16 MiB"]
# A job library that notes where its file was found, by which a test tells on which node a rank was.
NOTED = """
import os

import torch_rl
from torch_rl import reward


def note(context, kind):
    with open(os.path.join(os.environ["NOTES"], f"{kind}-{context.engine}-{context.rank}"), "w") as file:
        file.write(__file__)


class Engine(torch_rl.Engine):
    def __init__(self, context):
        super().__init__(context)
        note(context, "engine")


class Trainer(torch_rl.Trainer):
    def __init__(self, context):
        super().__init__(context)
        note(context, "trainer")
"""


class Cluster(TwoNodes):
    """Two nodes, whose connections are encrypted, and the job of the example."""

    def __init__(self, path):
        super().__init__(path, gpus=GPUS, gpu_bytes=16 << 20, TANDEM_TLS="on", OMP_NUM_THREADS="1",
                         PYTHONDONTWRITEBYTECODE="1")
        shutil.copytree(EXAMPLE, self.folder, ignore=shutil.ignore_patterns("__pycache__"))
        (self.folder / "noted.py").write_text(NOTED, encoding="utf-8")
        unseen = (DATA / "number_sorting.unseen.jsonl").read_text(encoding="utf-8").splitlines()
        (path / "unseen.jsonl").write_text("\n".join(unseen[:8]) + "\n", encoding="utf-8")

    def run(self, name, *settings, **more):
        """Run the job in its folder and return its steps; its output is in the folder `name`."""
        done = self.run_job("--out", self.path / name, *SETTINGS, f"data.unseen={self.path / 'unseen.jsonl'}", *settings,
                            timeout=1200, **more)
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert not [line for line in lines if re.search("lost|restart", line.get("note", ""))], done.stdout
        return [line for line in lines if line.get("kind") == "step"]

    def nodes(self):
        """Return {kind of rank: nodes on which such ranks were}: "first" has the job's folder, "second" a copy."""
        found = {}
        for note in (self.path / "notes").iterdir():
            module = pathlib.Path(note.read_text(encoding="utf-8"))
            node = "first" if module.parent == self.folder else "second"
            assert node == "first" or "/content/" in str(module), module
            found.setdefault(note.name.partition("-")[0], set()).add(node)
        return found


def sent_bytes(out):
    """Return how many bytes the trainers have sent to engines in all updates."""
    events = json.loads((out / "trace.json").read_text(encoding="utf-8"))
    return sum(event["args"]["bytes"] for event in events
               if event["ph"] == "X" and event["name"].startswith("send bucket"))


def numbers_of(steps):
    """Return the numbers of each step that must not depend on the nodes."""
    return [(step["step"], step["reward"], step["metrics"]["loss"], step["metrics"]["grad_norm"]) for step in steps]


def test_engines_on_another_node_have_the_trainers_weights_and_learn_the_same(tmp_path):
    with Cluster(tmp_path) as cluster:
        steps = cluster.run("apart", "update.mode=copy", *APART)
        nodes = cluster.nodes()
        alone = cluster.run("alone", f"cluster.num_gpus={GPUS}", TANDEM_ADDRESS="")
    assert len(nodes["trainer"]) == 1 and len(nodes["engine"]) == 1 and nodes["trainer"] != nodes["engine"], nodes
    assert len(alone) == STEPS and all(step["reward"] > 0 for step in alone), alone
    assert numbers_of(steps) == numbers_of(alone)
    assert all(step["metrics"]["logprob_diff_max"] < 1e-4 for step in steps), steps
    assert sent_bytes(tmp_path / "apart") > 0
