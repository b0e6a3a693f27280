# SPDX-License-Identifier: Apache-2.0
"""A training loop of one's own, in the shape of slime's train.py: Tandem gives actors, memory and weights, no job.

Trainer ranks and engines are actors on the same GPUs. The loop decides what is resident when: engines generate, their
memory is paused, trainers resume and learn, the weights go to the engines, and so on. The rollout and training code is
the user's; here it is the task of examples/python_job (each letter is answered by its successor).

    tandem python examples/python_loop/train.py
"""
import random

import numpy
import ray

import tandem
import tandem.group
import tandem.job
import tandem.weights

LETTERS = "abcdefgh"
COUNT = len(LETTERS)
GPUS, ROLLOUTS, PROMPTS, SAMPLES = 2, 16, 16, 8


def softmax(rows):
    """Return the probabilities of rows of numbers."""
    powers = numpy.exp(rows - rows.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class Resident:
    """A table of numbers in a region of device memory, which is taken away and given back."""

    def __init__(self, tag):
        self.region = tandem.Region(tag, COUNT * COUNT * 4, paused=True)
        self.table = None

    def onload(self):
        """Take the memory; the table has its contents again."""
        self.region.resume(timeout=10)
        if self.table is None:
            # numpy makes arrays of DLPack that cannot be written; their address does not change.
            memory = tandem.job.Memory(self.region.tag, numpy.from_dlpack(self.region).ctypes.data, COUNT * COUNT * 4)
            self.table = numpy.frombuffer(memory.buffer, "float32").reshape(COUNT, COUNT)

    def offload(self):
        """Give the memory to the other actors of the GPU."""
        self.region.pause()


@ray.remote
class Trainer:
    """One trainer rank of the data-parallel group."""

    def __init__(self, rank, lr):
        self.lr = lr
        self.memory = Resident("train")
        self.memory.onload()
        self.table = self.memory.table
        self.table[:] = 0
        self.group = tandem.group.join("trainers", rank, GPUS, timeout=30)
        # Rank 0 has the whole model: data-parallel ranks have the same weights.
        self.sender = tandem.weights.Sender("policy", {"table": self.table}, receivers=GPUS) if rank == 0 else None

    def connect(self):
        """Send the first weights."""
        if self.sender:
            self.sender.connect()

    def onload(self):
        self.memory.onload()

    def offload(self):
        self.memory.offload()

    def train(self, groups):
        """Learn from this rank's groups of samples; return the norm of the gradient."""
        gradient = numpy.zeros((COUNT, COUNT), "float32")
        for rows, tokens, rewards in groups[self.group.rank::GPUS]:
            advantages = rewards - rewards.mean(axis=0)
            for token, advantage in zip(tokens, advantages):
                part = -softmax(self.table[rows])
                part[numpy.arange(len(rows)), token] += 1
                numpy.add.at(gradient, rows, part * advantage[:, None])
        self.group.all_reduce(gradient)
        self.table += self.lr * gradient
        return float(numpy.linalg.norm(gradient))

    def update_weights(self):
        """Send the weights to all engines and return their version."""
        return self.sender.send() if self.sender else None


@ray.remote
class Engine:
    """One engine."""

    def __init__(self):
        self.memory = Resident("weights")
        self.memory.onload()
        self.receiver = tandem.weights.Receiver("policy", {"table": self.memory.table})

    def connect(self):
        """Get the first weights."""
        self.receiver.connect()

    def onload(self):
        self.memory.onload()

    def offload(self):
        self.memory.offload()

    def update_weights(self):
        """Get the next version."""
        return self.receiver.receive(timeout=30)

    def generate(self, prompts, seed):
        """Return (rows, tokens, rewards) of several answers to each prompt."""
        noise = numpy.random.default_rng(seed)
        groups = []
        for prompt in prompts:
            rows = numpy.array([LETTERS.index(letter) for letter in prompt])
            scores = self.memory.table[rows] + noise.gumbel(size=(SAMPLES, len(rows), COUNT))
            tokens = scores.argmax(axis=2)
            groups.append((rows, tokens, (tokens == (rows + 1) % COUNT).astype("float32")))
        return groups


@ray.remote
class RolloutManager:
    """Gives prompts to the engines and collects their answers."""

    def __init__(self, engines):
        self.engines = engines
        self.random = random.Random(0)

    def generate(self, rollout):
        """Return the samples of a rollout and the share of answers that are right."""
        prompts = ["".join(self.random.choices(LETTERS, k=3)) for _ in range(PROMPTS)]
        share = PROMPTS // GPUS
        answers = ray.get([engine.generate.remote(prompts[index * share:(index + 1) * share], (rollout, index))
                           for index, engine in enumerate(self.engines)])
        groups = [group for part in answers for group in part]
        return groups, float(numpy.mean([rewards.all(axis=1).mean() for _, _, rewards in groups]))


def every(actors, method, *args):
    """Call a method of all actors and return the results."""
    return ray.get([getattr(actor, method).remote(*args) for actor in actors])


def main():
    """Train."""
    ray.init(num_cpus=8, num_gpus=GPUS)
    group = ray.util.placement_group([{"CPU": 3, "GPU": 1}] * GPUS, strategy="PACK")
    ray.get(group.ready())
    strategies = [ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=index) for index in range(GPUS)]
    trainers = [Trainer.options(num_cpus=1, num_gpus=0.4, scheduling_strategy=strategy).remote(rank, 0.1)
                for rank, strategy in enumerate(strategies)]
    engines = [Engine.options(num_cpus=1, num_gpus=0.2, scheduling_strategy=strategy).remote()
               for strategy in strategies]
    manager = RolloutManager.options(num_cpus=1).remote(engines)

    first = [engine.connect.remote() for engine in engines]
    every(trainers, "connect")
    ray.get(first)
    every(trainers, "offload")
    for rollout in range(ROLLOUTS):
        samples, reward = ray.get(manager.generate.remote(rollout))
        every(engines, "offload")
        every(trainers, "onload")
        norm = every(trainers, "train", samples)[0]
        every(engines, "onload")
        received = [engine.update_weights.remote() for engine in engines]
        version = every(trainers, "update_weights")[0]
        assert ray.get(received) == [version] * GPUS
        every(trainers, "offload")
        print(f"rollout {rollout}: {100 * reward:.0f} % right, gradient {norm:.1f}, version {version}")
    ray.shutdown()


if __name__ == "__main__":
    main()
