# SPDX-License-Identifier: Apache-2.0
"""A job that updates an engine with the weights of a Megatron model, for test_megatron_job.py.

Each trainer rank writes what slime's steps gather to a file, and the engine what the update has brought.
"""
import os
import pathlib
import zlib

import numpy

from tandem.job import Completion, Region, Slice, Tensor

FOLDER = pathlib.Path(os.environ["MEGATRON_JOB_FOLDER"])


class Trainer:
    """One rank of a Megatron model, whose parameters lie in a region."""

    @classmethod
    def regions(cls, context):
        """Declare room for all parameters of the small models."""
        return [Region("weights", 4 << 20)]

    def __init__(self, context):
        self.context = context

    def start(self, memory):
        """Build this rank's part of the model, move it into the region, and gather it by slime's steps."""
        import torch
        import torch.distributed as dist

        import megatron_models as models
        import slime_steps
        import tandem.megatron
        from tandem.layout import join
        torch.set_num_threads(1)
        described, etp = {"dense": (models.DENSE, 1), "moe": (models.MOE, 1), "moe-etp2": (models.MOE, 2)}[
            self.context.setting("model.case")]
        ranks = self.context.ranks_count
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{FOLDER}/group", rank=self.context.rank, world_size=ranks)
        models.prepare()
        models.initialize(etp)
        model = models.build(described, etp, "te")
        self.buffer, used = memory["weights"].buffer, 0
        for value in [*model.parameters(), *(value for _, value in slime_steps.expert_biases(model))]:
            view = torch.frombuffer(self.buffer, dtype=value.dtype, count=value.numel(), offset=used)
            value.data = view.view(value.shape)
            used += -(-value.numel() * 4 // 256) * 256
        whole = slime_steps.gathered_of(model, described)
        numpy.savez(FOLDER / f"gathered{self.context.rank}.npz",
                    **{name: value.numpy() for name, value in whole.items()})
        self.model, self.found = model, tandem.megatron.layout(model, models.VOCABULARY)
        lists = [None] * ranks
        dist.all_gather_object(lists, self.found.tensors)
        self.tensors = join(lists)

    def layout(self):
        """Return what tandem.megatron has read."""
        return ([Tensor(tensor.name, tensor.dtype, tensor.shape) for tensor in self.tensors],
                [Slice(part.name, part.memory, part.offset, part.extent) for part in self.found.sent()])

    def step(self, batch):
        """Learn nothing."""
        return {}

    def save(self, directory):
        """Write nothing."""
        os.makedirs(os.path.join(directory, "hf"), exist_ok=True)

    def load(self, directory):
        """Read nothing."""


class Engine:
    """An engine rank that has the tensors whose name's checksum is its number, whole."""

    @classmethod
    def regions(cls, context):
        """Declare room for all tensors."""
        return [Region("weights", 8 << 20)]

    def __init__(self, context):
        self.context = context
        self.places = {}

    def start(self, memory):
        """Keep the memory."""
        self.buffer = memory["weights"].buffer

    def layout(self, tensors):
        """Place this rank's tensors one after the other."""
        used, slices = 0, []
        for tensor in tensors:
            if zlib.crc32(tensor.name.encode()) % self.context.ranks_count == self.context.rank:
                place = numpy.frombuffer(self.buffer, "float32", tensor.size_bytes // 4, used).reshape(tensor.shape)
                self.places[tensor.name] = place
                slices.append(Slice(tensor.name, place))
                used += -(-tensor.size_bytes // 256) * 256
        return slices

    def load(self, weights, tensors):
        """Refuse files: this job does not resume."""
        raise NotImplementedError

    def complete(self):
        """Say that nothing is missing."""

    def generate(self, prompts, sampling):
        """Write the weights that are served to a file; the answers do not matter."""
        numpy.savez(FOLDER / f"served{self.context.engine}-{self.context.rank}.npz", **self.places)
        return [Completion([1], [0.0], "") for _ in prompts]


def reward(prompt, answer, completion):
    """Return 0."""
    return 0.0, [0.0]
