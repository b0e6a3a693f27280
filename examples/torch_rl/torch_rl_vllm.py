# SPDX-License-Identifier: Apache-2.0
"""The job of torch_rl.py with engines of vLLM 0.32, of any number of tensor-parallel ranks.

    tandem run examples/torch_rl/job.yaml job.library=python:torch_rl_vllm job.start_timeout_ms=300000 \\
        cluster.gpu_bytes="38 MiB"
"""
from torch_rl import Trainer, reward  # noqa: F401  (the other two that a job wants)

import model as models
import tandem.vllm
import task


class Engine(tandem.vllm.Engine):
    """A rank of vLLM with the tokens of the task."""

    @classmethod
    def model_config(cls, context):
        """Return the configuration of the section `model` of the job file."""
        return models.config_of(context.config["model"])

    def __init__(self, context):
        self.tokenizer = task.Tokenizer(context.config["model"]["characters"])
        super().__init__(context)

    def encode(self, text):
        """Return the tokens of a prompt, without padding."""
        return self.tokenizer.encode(text, task.ANSWER)

    def decode(self, tokens):
        """Return one character for each token."""
        return self.tokenizer.decode(tokens)

    def arguments(self):
        """Let many short answers be computed at the same time."""
        return {"max_model_len": self.config.max_position_embeddings, "max_num_seqs": 512, "block_size": 32,
                **super().arguments()}
