# SPDX-License-Identifier: Apache-2.0
"""A job whose engine is vLLM, for test_vllm_job.py: the trainer changes its weights at random in each step.

Its metric logprob_diff_max is the largest difference between the engine's log-probabilities and its own.
"""
import os

import tiny
import torch

import tandem.vllm
from tandem.job import Region, Slice, Tensor

ANSWER, FIRST = 2, 3  # The token between prompt and answer, and that of the digit 0.


def encode(text):
    """Return the tokens of a prompt."""
    return [FIRST + int(digit) for digit in text] + [ANSWER]


def is_tied(context):
    """Return whether the job's model has tied embeddings."""
    return context.setting("model.is_tied", False)


class Trainer:
    """A rank that has every second tensor of the model in its region, and computes with a whole model."""

    @classmethod
    def regions(cls, context):
        """Declare room for all tensors."""
        return [Region("weights", 4 << 20)]

    def __init__(self, context):
        torch.set_num_threads(1)
        self.context = context
        self.model = tiny.model(seed=1, is_tied=is_tied(context))
        self.steps = 0

    def start(self, memory):
        """Copy this rank's tensors into the region."""
        self.parts, used = {}, 0
        for index, (name, tensor) in enumerate(tiny.tensors(self.model).items()):
            if index % self.context.ranks_count == self.context.rank:
                self.parts[name] = torch.frombuffer(memory["weights"].buffer, dtype=torch.float32, offset=used,
                                                    count=tensor.numel()).view(tensor.shape)
                used += -(-tensor.numel() * 4 // 256) * 256
        self._copy()

    def _copy(self):
        for name, part in self.parts.items():
            part.copy_(tiny.tensors(self.model)[name])

    def layout(self):
        """Return all tensors, and those of this rank."""
        return ([Tensor(name, "float32", tensor.shape) for name, tensor in tiny.tensors(self.model).items()],
                [Slice(name, part) for name, part in self.parts.items()])

    def logprobs(self, batch):
        """Return the log-probabilities of the samples' tokens."""
        return [tiny.logprobs(self.model, encode(sample.prompt), list(sample.tokens)) for sample in batch.samples]

    def step(self, batch):
        """Compare the log-probabilities, then change the weights."""
        largest = 0.0
        for sample in batch.samples if not batch.supervised else []:
            own = tiny.logprobs(self.model, encode(sample.prompt), list(sample.tokens))
            largest = max([largest, *(abs(one - other) for one, other in zip(own, sample.logprobs))])
        self.steps += 1
        tiny.change(self.model, seed=self.steps)
        self._copy()
        return {"logprob_diff_max": largest}

    def save(self, directory):
        """Write the number of steps."""
        os.makedirs(os.path.join(directory, "hf"), exist_ok=True)

    def load(self, directory):
        """Read nothing: this job does not resume."""
        raise NotImplementedError


class Engine(tandem.vllm.Engine):
    """vLLM with the tokens of this job. With engine.is_stale it does not renew packed copies, as vLLM by itself."""

    def __init__(self, context):
        super().__init__(context)
        if context.setting("engine.is_stale", False):
            from tandem import _vllm_weights
            _vllm_weights.renew_copies = lambda model: None

    @classmethod
    def regions(cls, context):
        """Declare what the base class does; engine.declared_kv_cache_bytes makes it wrong about the KV cache."""
        wrong = context.setting("engine.declared_kv_cache_bytes")
        return [Region(region.tag, wrong, keep=False, outside=True) if wrong and region.tag == "kv_cache" else region
                for region in super().regions(context)]

    @classmethod
    def model_config(cls, context):
        """Return the configuration of the small model."""
        return tiny.config(is_tied(context))

    def encode(self, text):
        """Return the tokens of a prompt."""
        return encode(text)

    def decode(self, tokens):
        """Return digits; "_" for other tokens."""
        return "".join(str(token - FIRST) if FIRST <= token < FIRST + 10 else "_" for token in tokens)


def reward(prompt, answer, completion):
    """Return 0 for each token."""
    return 0.0, [0.0] * len(completion.tokens)
