# SPDX-License-Identifier: Apache-2.0
"""A pool of actors: more work than actors, with results in order and as they arrive."""
import time

import ray
from ray.util import ActorPool


@ray.remote
class Squarer:
    def work(self, delay, number):
        time.sleep(delay)
        return number * number


ray.init(num_cpus=4)
pool = ActorPool([Squarer.remote() for _ in range(2)])

print("map:", list(pool.map(lambda actor, number: actor.work.remote(0, number), range(8))))
print("map_unordered:", sorted(pool.map_unordered(lambda actor, number: actor.work.remote(0.01, number), range(8))))

pool.submit(lambda actor, number: actor.work.remote(0.5, number), 3)
pool.submit(lambda actor, number: actor.work.remote(0, number), 4)
pool.submit(lambda actor, number: actor.work.remote(0, number), 5)
print("has_next:", pool.has_next(), "has_free:", pool.has_free())
print("first to arrive:", pool.get_next_unordered(timeout=10))
print("second:", pool.get_next_unordered())
print("last:", pool.get_next_unordered())
print("has_next:", pool.has_next())

extra = Squarer.remote()
pool.push(extra)
try:
    pool.push(extra)
except ValueError as error:
    print("ValueError:", error)
idle = pool.pop_idle()
print("an idle actor:", ray.get(idle.work.remote(0, 9)))
try:
    pool.get_next()
except StopIteration as error:
    print("StopIteration:", error)
pool.submit(lambda actor, number: actor.work.remote(2, number), 1)
try:
    pool.get_next(timeout=0.1)
except TimeoutError as error:
    print("TimeoutError:", error)
