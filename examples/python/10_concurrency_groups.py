# SPDX-License-Identifier: Apache-2.0
"""Concurrency groups, threads, actors that create actors, and what actors print."""
import asyncio
import threading
import time

import ray


@ray.remote(concurrency_groups={"io": 2, "compute": 4})
class Server:
    def __init__(self):
        self.running = {"io": 0, "compute": 0}
        self.most = {"io": 0, "compute": 0}

    async def _work(self, group):
        self.running[group] += 1
        self.most[group] = max(self.most[group], self.running[group])
        await asyncio.sleep(0.05)
        self.running[group] -= 1

    @ray.method(concurrency_group="io")
    async def read(self):
        await self._work("io")

    @ray.method(concurrency_group="compute")
    async def calculate(self):
        await self._work("compute")

    async def result(self):
        return self.most


@ray.remote(max_concurrency=4)
class Threaded:
    def __init__(self):
        self.barrier = threading.Barrier(3)

    def meet(self):
        self.barrier.wait(timeout=20)
        return "met"


@ray.remote
class Child:
    def __init__(self, name):
        self.name = name
        print("hello from", name)

    def report(self, number):
        print(f"{self.name} works on {number}")
        return f"{self.name}-{number}"


@ray.remote
class Supervisor:
    def __init__(self, names):
        self.children = [Child.remote(name) for name in names]

    def work(self, number):
        return ray.get([child.report.remote(number) for child in self.children])


@ray.remote
def announce(text):
    print("announce", text)
    return text.upper()


ray.init(num_cpus=4)
server = Server.remote()
ray.get([server.read.remote() for _ in range(6)] + [server.calculate.remote() for _ in range(8)])
print("most at once:", ray.get(server.result.remote()))
ray.get(server.calculate.options(concurrency_group="io").remote())

threaded = Threaded.remote()
print("threads:", ray.get([threaded.meet.remote() for _ in range(3)]))

supervisor = Supervisor.remote(["left", "right"])
print("children:", ray.get([supervisor.work.remote(number) for number in range(2)]))
print("announced:", ray.get([announce.remote(text) for text in ("a", "b")]))
time.sleep(1)  # The output of the actors arrives.
