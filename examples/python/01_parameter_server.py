# SPDX-License-Identifier: Apache-2.0
"""A parameter server: workers compute gradients, and an actor applies them, first in rounds and then as they arrive."""
import numpy as np
import ray

ROUNDS = 20
WORKERS = 3


@ray.remote
class ParameterServer:
    """Holds the weights of a linear model."""

    def __init__(self, size, rate):
        self.weights = np.zeros(size)
        self.rate = rate
        self.updates = 0

    def apply_gradients(self, *gradients):
        """Take a step along the mean of the gradients and return the new weights."""
        self.weights -= self.rate * np.mean(gradients, axis=0)
        self.updates += 1
        return self.weights

    def get_weights(self):
        return self.weights

    def count(self):
        return self.updates


@ray.remote
class DataWorker:
    """Computes the gradient of the squared error on data of its own."""

    def __init__(self, seed):
        generator = np.random.default_rng(seed)
        self.inputs = generator.normal(size=(200, 4))
        self.outputs = self.inputs @ np.array([1.0, -2.0, 3.0, 0.5])

    def compute_gradients(self, weights):
        return self.inputs.T @ (self.inputs @ weights - self.outputs) / len(self.inputs)


ray.init(num_cpus=4)

server = ParameterServer.remote(4, 0.5)
workers = [DataWorker.remote(seed) for seed in range(WORKERS)]

weights = server.get_weights.remote()
for round_number in range(ROUNDS):
    gradients = [worker.compute_gradients.remote(weights) for worker in workers]
    weights = server.apply_gradients.remote(*gradients)
print("synchronous:", np.round(ray.get(weights), 3).tolist())

server = ParameterServer.remote(4, 0.3)
weights = server.get_weights.remote()
running = {worker.compute_gradients.remote(weights): worker for worker in workers}
for step in range(ROUNDS * WORKERS):
    ready, _ = ray.wait(list(running))
    worker = running.pop(ready[0])
    weights = server.apply_gradients.remote(ready[0])
    running[worker.compute_gradients.remote(weights)] = worker
print("asynchronous:", np.round(ray.get(weights), 2).tolist())
print("updates:", ray.get(server.count.remote()))
