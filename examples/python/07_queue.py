# SPDX-License-Identifier: Apache-2.0
"""A queue between processes: producers, consumers, its limit, and what it raises when it is full or empty."""
import ray
from ray.util.queue import Empty, Full, Queue


@ray.remote
def produce(queue, name, count):
    for number in range(count):
        queue.put((name, number))
    return count


@ray.remote
class Consumer:
    def __init__(self, queue):
        self.queue = queue
        self.taken = []

    def consume(self, count):
        for _ in range(count):
            self.taken.append(self.queue.get(timeout=20))
        return len(self.taken)

    def sum(self):
        return sum(number for _, number in self.taken)


ray.init(num_cpus=4)
queue = Queue(maxsize=4)
consumers = [Consumer.remote(queue) for _ in range(2)]
producers = [produce.remote(queue, name, 10) for name in "ab"]
print("consumed:", ray.get([consumer.consume.remote(10) for consumer in consumers]))
print("produced:", ray.get(producers))
print("sum:", sum(ray.get([consumer.sum.remote() for consumer in consumers])))
print("empty:", queue.empty(), "size:", queue.qsize())

for number in range(4):
    queue.put_nowait(number)
print("full:", queue.full(), len(queue))
try:
    queue.put_nowait(4)
except Full:
    print("Full")
try:
    queue.put(4, timeout=0.1)
except Full:
    print("Full after a while")
print("batch:", queue.get_nowait_batch(2))
queue.put_nowait_batch(["x", "y"])
try:
    queue.put_nowait_batch(["z"] * 3)
except Full:
    print("the batch is too large")
print("rest:", [queue.get() for _ in range(4)])
try:
    queue.get(block=False)
except Empty:
    print("Empty")
try:
    queue.get(timeout=-1)
except ValueError as error:
    print("ValueError:", error)
queue.shutdown()
try:
    queue.put(1)
except ray.exceptions.RayActorError as error:
    print("after shutdown:", type(error).__name__)
