# SPDX-License-Identifier: Apache-2.0
"""The learner of examples/torch_rl in regions that are paused and resumed, and hooks that refuse paused ones."""
import pathlib

import pytest

pytest.importorskip("torch", reason="skipped: the Python package torch is missing")
pytest.importorskip("transformers", reason="skipped: the Python package transformers is missing")

from tandem import ray  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
PATHS = [str(HERE), str(HERE.parents[2] / "examples/torch_rl")]


@pytest.fixture(scope="module", autouse=True)
def node():
    ray.init(num_cpus=2, num_gpus=1, log_to_driver=False)
    yield
    ray.shutdown()


@ray.remote(num_gpus=1)
class Rank:
    """The only rank of a trainer, in a process that has a GPU."""

    def __init__(self, folder):
        import sys
        sys.path[:0] = PATHS
        import torch
        torch.set_num_threads(1)
        torch.distributed.init_process_group("cpu:gloo", init_method=f"file://{folder}/group", rank=0, world_size=1)

    def weights_after_three_steps(self):
        """Return the weights after three steps in memory that is never paused."""
        import learner as learners
        import test_torch_rl as parts
        learner = learners.Learner(parts.TIED, 0, 1, 1, *parts.buffers_of(parts.TIED, 1))
        for step in (1, 2, 3):
            learner.step(parts.batch_of(False, 3, step=step))
        return {name: value.tolist() for name, value in learner.whole_weights().items()}

    def weights_with_pauses(self):
        """Do the same steps in regions, with a pause between two of them; return the tags of refused uses, and the
        weights."""
        import learner as learners
        import test_torch_rl as parts
        from tandem import memory
        regions = [memory.allocate(tag, size) for tag, size in
                   zip(("weights", "moments"), learners.Learner.region_bytes(parts.TIED, 1))]
        learner = learners.Learner(parts.TIED, 0, 1, 1, *[region.buffer() for region in regions])
        guard = memory.guard(learner.model, learner.optimizer, ("weights", "moments"))
        learner.step(parts.batch_of(False, 3, step=1))
        refused = []
        for tag in ("weights", "moments"):
            memory.pause(tag)
            for use in (lambda: learner.step(parts.batch_of(False, 3, step=2)), learner.optimizer.step):
                try:
                    use()
                except memory.MemoryPausedError as error:
                    refused.append(error.tag)
            memory.resume(tag, timeout=60)
        for step in (2, 3):
            learner.step(parts.batch_of(False, 3, step=step))
        guard.remove()
        return refused, {name: value.tolist() for name, value in learner.whole_weights().items()}


def test_a_learner_is_paused_and_resumed_and_refuses_to_touch_paused_memory(tmp_path):
    rank = Rank.remote(str(tmp_path))
    wanted = ray.get(rank.weights_after_three_steps.remote(), timeout=300)
    refused, found = ray.get(rank.weights_with_pauses.remote(), timeout=300)
    assert refused == ["weights", "weights", "moments", "moments"]
    assert found == wanted, "a pause changes nothing"
    ray.kill(rank)
