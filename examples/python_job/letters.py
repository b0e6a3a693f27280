# SPDX-License-Identifier: Apache-2.0
"""The smallest job in Python that learns: each letter of the prompt is answered by its successor ("cab" -> "dbc").

The model is one table of numbers, a row for each letter of the prompt: the softmax of a row is the probability of each
letter of the answer. Two trainer ranks keep half of the rows each and learn by REINFORCE; engines keep all rows.
"""
import os

import numpy

from tandem.job import Completion, Region, Slice, Tensor

LETTERS = "abcdefgh"
COUNT = len(LETTERS)
TABLE = Tensor("table", "float32", (COUNT, COUNT))


def softmax(rows):
    """Return the probabilities of rows of numbers."""
    powers = numpy.exp(rows - rows.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def numbers(text):
    """Return the numbers of the letters of a text."""
    return numpy.array([LETTERS.index(letter) for letter in text])


class Trainer:
    """One trainer rank: it has a part of the rows, and computes the gradient of all rows for its samples."""

    @classmethod
    def regions(cls, context):
        """Declare the rows of this rank."""
        return [Region("rows", TABLE.size_bytes // context.ranks_count)]

    def __init__(self, context):
        self.group = context.group
        self.lr = context.setting("trainer.lr", 1.0)
        self.first = COUNT * context.rank // context.ranks_count
        self.count = COUNT // context.ranks_count
        self.table = numpy.zeros((COUNT, COUNT), "float32")

    def start(self, memory):
        """Begin with zeros: every letter is as probable as the others."""
        self.rows = numpy.frombuffer(memory["rows"].buffer, "float32")[:self.count * COUNT].reshape(self.count, COUNT)
        self.rows[:] = 0

    def layout(self):
        """Say which rows of the table this rank has."""
        return [TABLE], [Slice("table", self.rows, offset=(self.first, 0), extent=(self.count, COUNT))]

    def step(self, batch):
        """Learn from the samples of this rank, and from those of the others through the sum of all gradients."""
        gradient = numpy.zeros((COUNT, COUNT), "float32")
        if batch.supervised:
            for sample in batch.samples:
                self._add(gradient, sample.prompt, numbers(sample.answer), numpy.ones(len(sample.answer)))
        else:
            for group in {sample.group for sample in batch.samples}:
                samples = [sample for sample in batch.samples if sample.group == group]
                rewards = numpy.array([sample.token_rewards for sample in samples])
                for sample, advantages in zip(samples, rewards - rewards.mean(axis=0)):
                    self._add(gradient, sample.prompt, numpy.array(sample.tokens), advantages)
        self.group.all_reduce(gradient)
        self.table += self.lr * gradient
        self.rows[:] = self.table[self.first:self.first + self.count]
        return {"grad_norm": numpy.linalg.norm(gradient)}

    def _add(self, gradient, prompt, tokens, advantages):
        """Add the gradient of the log-probabilities of an answer's tokens."""
        rows = numbers(prompt)
        gradients = -softmax(self.table[rows])
        gradients[numpy.arange(len(tokens)), tokens] += 1
        numpy.add.at(gradient, rows, gradients * advantages[:, None])

    def save(self, directory):
        """Write the whole table, which every rank knows."""
        numpy.save(os.path.join(directory, f"rank-{self.group.rank}.npy"), self.table)
        if self.group.rank == 0:
            os.makedirs(os.path.join(directory, "hf"), exist_ok=True)
            numpy.save(os.path.join(directory, "hf", "table.npy"), self.table)

    def load(self, directory):
        """Continue where save() was called."""
        self.table = numpy.load(os.path.join(directory, f"rank-{self.group.rank}.npy"))
        self.rows[:] = self.table[self.first:self.first + self.count]


class Engine:
    """One engine, of one rank."""

    @classmethod
    def regions(cls, context):
        """Declare the table."""
        return [Region("weights", TABLE.size_bytes)]

    def __init__(self, context):
        self.table = None

    @staticmethod
    def _table(memory):
        return numpy.frombuffer(memory.buffer, "float32")[:COUNT * COUNT].reshape(COUNT, COUNT)

    def start(self, memory):
        """Keep the place of the table, in which each update is written before it is served."""
        self.table = self._table(memory["weights"])

    def layout(self, tensors):
        """Let the trainers write the whole table."""
        return [Slice(tensors[0], self.table)]

    def begin(self):
        """Forget what load() has got."""
        self.has_table = False

    def load(self, weights, tensors):
        """Copy the table; used by `update.mode: names` and for files."""
        for tensor in tensors:
            if tensor.name != TABLE.name or tensor.shape != TABLE.shape:
                raise ValueError(f"the tensor {tensor.name} of shape {tensor.shape} is unknown")
            self._table(weights)[:] = tensor.numpy()
            self.has_table = True

    def complete(self):
        """Say what is missing after an update by load()."""
        return None if self.has_table else "the table is missing"

    def generate(self, prompts, sampling):
        """Choose a letter for each letter of each prompt."""
        return [self._answer(prompt, sampling) for prompt in prompts]

    def _answer(self, prompt, sampling):
        logprobs = numpy.log(softmax(self.table[numbers(prompt.text)] / (sampling.temperature or 1)))
        if sampling.temperature == 0:
            tokens = logprobs.argmax(axis=1)
        else:
            noise = numpy.random.default_rng(prompt.seed).gumbel(size=logprobs.shape)
            tokens = (logprobs + noise).argmax(axis=1)
        return Completion(tokens, logprobs[numpy.arange(len(tokens)), tokens],
                          "".join(LETTERS[token] for token in tokens))


def reward(prompt, answer, completion):
    """Return 1 for an answer that is right, and 1 for each token that is."""
    del prompt
    right = [float(given == wanted) for given, wanted in zip(completion.text, answer)]
    return float(completion.text == answer), right
