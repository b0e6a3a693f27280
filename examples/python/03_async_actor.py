# SPDX-License-Identifier: Apache-2.0
"""Asynchronous actors: methods that overlap, a signal for many waiters, and results awaited by the driver."""
import asyncio
import time

import ray


@ray.remote
class Signal:
    """Lets tasks wait until somebody sends the signal."""

    def __init__(self):
        self.event = asyncio.Event()
        self.waiting = 0

    async def send(self):
        self.event.set()

    async def wait(self):
        self.waiting += 1
        await self.event.wait()
        return "go"

    async def count(self):
        return self.waiting


@ray.remote(max_concurrency=2)
class Limited:
    """Counts how many of its calls run at once."""

    def __init__(self):
        self.running = self.most = 0

    async def work(self):
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.05)
        self.running -= 1
        return self.most


@ray.remote
def wait_for(signal, name):
    return name, ray.get(signal.wait.remote())


@ray.remote
class Client:
    async def ask_all(self, signal, count):
        return await asyncio.gather(*[signal.wait.remote() for _ in range(count)])


async def main():
    signal = Signal.remote()
    tasks = [wait_for.remote(signal, f"task {number}") for number in range(3)]
    while await signal.count.remote() < 3:
        await asyncio.sleep(0.01)
    ready, waiting = ray.wait(tasks, num_returns=3, timeout=0.1)
    print("before the signal:", len(ready), "ready,", len(waiting), "waiting")
    await signal.send.remote()
    print("after the signal:", await asyncio.gather(*tasks))
    print("awaited in an actor:", await Client.remote().ask_all.remote(signal, 2))

    limited = Limited.remote()
    print("most at once:", max(await asyncio.gather(*[limited.work.remote() for _ in range(6)])))
    done, pending = await asyncio.wait([asyncio.ensure_future(wait_for.remote(signal, "last"))], timeout=20)
    print("asyncio.wait:", [task.result() for task in done], len(pending))


ray.init(num_cpus=4)
asyncio.run(main())

begin = time.monotonic()
sleeper = Limited.options(max_concurrency=10).remote()
ray.get([sleeper.work.remote() for _ in range(10)])
print("ten overlap:", time.monotonic() - begin < 20)
