# SPDX-License-Identifier: Apache-2.0
"""Named actors: looked up by name, in namespaces, detached, shared by get_if_exists, and ended."""
import time

import ray


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def increment(self, by=1):
        self.value += by
        return self.value

    def leave(self):
        ray.actor.exit_actor()


@ray.remote
def add_by_name(name, by):
    return ray.get(ray.get_actor(name).increment.remote(by))


ray.init(num_cpus=4, namespace="colors")

orange = Counter.options(name="orange", lifetime="detached").remote(10)
print("by name:", ray.get(ray.get_actor("orange").increment.remote()))
print("in a task:", ray.get(add_by_name.remote("orange", 5)))

try:
    ray.get_actor("orange", namespace="fruits")
except ValueError:
    print("not in the other namespace")
fruit = Counter.options(name="orange", namespace="fruits").remote(100)
print("the other orange:", ray.get(ray.get_actor("orange", namespace="fruits").increment.remote()))

try:
    Counter.options(name="orange").remote()
except ValueError as error:
    print("taken:", "orange" in str(error))

shared = [Counter.options(name="green", get_if_exists=True).remote() for _ in range(3)]
print("one actor:", [ray.get(handle.increment.remote()) for handle in shared])
print("namespace:", ray.get_runtime_context().namespace)
print("names:", sorted(ray.util.list_named_actors()))
print("names everywhere:", sorted((entry["namespace"], entry["name"])
                                  for entry in ray.util.list_named_actors(all_namespaces=True)))

ray.kill(orange)
try:
    ray.get(orange.increment.remote())
except ray.exceptions.RayActorError as error:
    print("killed:", type(error).__name__)

try:
    ray.get(shared[0].leave.remote())
except ray.exceptions.RayActorError as error:
    print("left:", type(error).__name__)
deadline = time.monotonic() + 20
while ray.util.list_named_actors() and time.monotonic() < deadline:
    time.sleep(0.05)
print("names:", ray.util.list_named_actors())
