# SPDX-License-Identifier: Apache-2.0
"""A job whose trainer is PyTorch's FSDP2 and whose engine is transformers: a Qwen3 model learns to sort digits.

    tandem run examples/torch_rl/job.yaml
"""
import os
import pathlib
import sys

import numpy
import torch
import torch.distributed as dist

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import learner as learners  # noqa: E402
import parallel  # noqa: E402
import rollout  # noqa: E402
import tandem.memory  # noqa: E402
import tandem.torch  # noqa: E402
import task  # noqa: E402
from tandem.job import Region, Slice, Tensor  # noqa: E402


class Trainer:
    """A trainer rank: shards of the parameters and of AdamW's moments, each in a region."""

    @classmethod
    def regions(cls, context):
        """Declare both regions. They keep their contents: updates read the weights while they are paused."""
        weights, moments = learners.Learner.region_bytes(context.config, context.ranks_count)
        return [Region("weights", weights), Region("moments", moments)]

    def __init__(self, context):
        """Join a process group of PyTorch, whose address the ranks exchange by their collective group."""
        torch.set_num_threads(1)
        self.context = context
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        is_first = context.rank == 0
        port = numpy.zeros(1)
        if is_first:
            self.store = dist.TCPStore("127.0.0.1", 0, context.ranks_count, True, wait_for_workers=False)
            port[0] = self.store.port
        context.group.all_reduce(port, op="max")
        if not is_first:
            self.store = dist.TCPStore("127.0.0.1", int(port[0]), context.ranks_count, False)
        dist.init_process_group("cpu:gloo", store=self.store, rank=context.rank, world_size=context.ranks_count)

    def start(self, memory):
        """Make the first weights."""
        self.learner = learners.Learner(self.context.config, self.context.rank, self.context.ranks_count,
                                        self.context.seed, memory["weights"].buffer, memory["moments"].buffer)
        # A forward pass or a step of the optimizer in a phase in which the memory is away raises MemoryPausedError.
        tandem.memory.guard(self.learner.model, self.learner.optimizer, ("weights", "moments"))

    def layout(self):
        """Return what FSDP has made of the model."""
        found = tandem.torch.layout(self.learner.model)
        return ([Tensor(tensor.name, tensor.dtype, tensor.shape) for tensor in found.tensors],
                [Slice(part.name, part.memory, part.offset, part.extent) for part in found.sent()])

    def logprobs(self, batch):
        """Compute what the engines should have: the log-probabilities of their tokens."""
        return self.learner.logprobs(batch)

    def step(self, batch):
        """Learn from a batch."""
        return self.learner.step(batch)

    def save(self, directory):
        """Write what load() needs, and a folder that transformers reads."""
        self.learner.save(directory)

    def load(self, directory):
        """Continue where save() was called."""
        self.learner.load(directory)

    def close(self):
        """Leave the process group."""
        dist.destroy_process_group()


class Engine:
    """A rank of an engine: its part of the parameters in the region "weights"."""

    @classmethod
    def regions(cls, context):
        """Declare the weights."""
        return [Region("weights", rollout.Generator.region_bytes(context.config, context.ranks_count))]

    def __init__(self, context):
        torch.set_num_threads(1)
        self.context = context
        self.loaded = set()

    def start(self, memory):
        """Make the parameters views of the region, which each update flips under them."""
        self.memory = memory["weights"]
        self.generator = rollout.Generator(self.context.config, self.memory.buffer, self.context.ranks_count,
                                           self.context.group.all_reduce)
        self.parameters = dict(self.generator.model.named_parameters())

    def layout(self, tensors):
        """Let the trainers write this rank's parts of their tensors, in the type of this engine."""
        dtype = rollout.dtype_of(self.context.config)
        return [Slice(tensor.name, *self._part(tensor), dtype=dtype) for tensor in tensors]

    def _part(self, tensor):
        """Return the parameter that is this rank's part of a tensor of the trainers, and the part's offset and extent;
        ValueError if there is no such parameter of this shape."""
        parameter = self.parameters.get(tensor.name)
        offset, extent = parallel.box_of(tensor.name, tensor.shape, self.context.rank, self.context.ranks_count)
        if parameter is None or tuple(parameter.shape) != extent:
            raise ValueError(f"the tensor {tensor.name} of shape {tuple(tensor.shape)} is not in the engine's model")
        return parameter.detach(), offset, extent

    def begin(self):
        """Forget what load() has got."""
        self.loaded.clear()

    def load(self, weights, tensors):
        """Copy this rank's parts of whole tensors; used by `update.mode: names` and for files."""
        for tensor in tensors:
            parameter, offset, extent = self._part(tensor)
            place = torch.frombuffer(weights.buffer, dtype=parameter.dtype, count=parameter.numel(),
                                     offset=parameter.data_ptr() - self.memory.address)
            part = tensor.torch()[tuple(slice(first, first + count) for first, count in zip(offset, extent))]
            place.view(parameter.shape).copy_(part)
            self.loaded.add(tensor.name)

    def complete(self):
        """Say what is missing after an update by load()."""
        missing = sorted(set(self.parameters) - self.loaded)
        return f"{len(missing)} tensors are missing, the first is {missing[0]}" if missing else None

    def served(self, tensor, part):
        """Return the parameter with which the model computes, or the one that is tied to it if they differ."""
        now = dict(self.generator.model.named_parameters(remove_duplicate=False))
        parameter, head = now[tensor.name], now["lm_head.weight"]
        is_tied = self.context.config["model"]["tie_word_embeddings"] and tensor.name == "model.embed_tokens.weight"
        return ("lm_head.weight", head) if is_tied and not torch.equal(parameter, head) else parameter

    def generate(self, prompts, sampling):
        """Answer prompts; the answers of all ranks are the same."""
        return self.generator.generate([prompt.text for prompt in prompts], [prompt.seed for prompt in prompts],
                                       sampling.temperature, sampling.tokens_max)


def reward(prompt, answer, completion):
    """Return the reward of an answer and those of its tokens."""
    return task.reward(prompt, answer, completion)
