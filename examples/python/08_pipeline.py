# SPDX-License-Identifier: Apache-2.0
"""A pipeline: values put once, references passed on, a bounded number of calls in flight, and nested tasks."""
import time

import numpy as np
import ray


@ray.remote
def load(number):
    time.sleep(0.01 * (number % 3))
    return np.full(50_000, number, dtype=np.int64)


@ray.remote
def transform(block, table):
    return block * table["factor"]


@ray.remote
class Store:
    """Keeps references, not values."""

    def __init__(self):
        self.refs = {}

    def add(self, key, refs):
        self.refs[key] = refs[0]

    def get(self, key):
        return self.refs[key]

    def total(self):
        return int(sum(block.sum() for block in ray.get(list(self.refs.values()))))


@ray.remote
def tree_sum(numbers):
    if len(numbers) == 1:
        return numbers[0]
    half = len(numbers) // 2
    return sum(ray.get([tree_sum.remote(numbers[:half]), tree_sum.remote(numbers[half:])]))


@ray.remote(num_returns=3)
def three():
    return 1, "two", [3]


ray.init(num_cpus=4)
table = ray.put({"factor": 10})
store = Store.remote()

in_flight = []
finished = 0
for number in range(12):
    if len(in_flight) >= 4:
        ready, in_flight = ray.wait(in_flight, num_returns=1)
        finished += len(ready)
    result = transform.remote(load.remote(number), table)
    store.add.remote(number, [result])
    in_flight.append(result)
ready, in_flight = ray.wait(in_flight, num_returns=len(in_flight), timeout=60)
print("finished:", finished + len(ready), "in flight:", len(in_flight))
print("total:", ray.get(store.total.remote()))
print("a reference from an actor:", int(ray.get(ray.get(store.get.remote(7)))[0]))

array = ray.get(ray.put(np.arange(1_000_000)))
print("read-only:", not array.flags.writeable, int(array[-1]))
print("nested:", ray.get(tree_sum.remote(list(range(8)))))
print("three:", ray.get(list(three.remote())))
slow = load.options(num_cpus=0).remote(2)
print("wait without time:", len(ray.wait([slow, table], timeout=0)[0]) >= 1)


@ray.remote
def sleep(seconds):
    time.sleep(seconds)


try:
    ray.get(sleep.remote(30), timeout=0.2)
except ray.exceptions.GetTimeoutError:
    print("GetTimeoutError")
ref = sleep.remote(30)
time.sleep(0.3)
ray.cancel(ref)
try:
    ray.get(ref, timeout=20)
except ray.exceptions.TaskCancelledError:
    print("TaskCancelledError")
