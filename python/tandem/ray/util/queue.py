# SPDX-License-Identifier: Apache-2.0
"""ray.util.queue: a queue that is an actor."""
import asyncio
import collections.abc
import queue

import tandem.ray as ray


class Empty(queue.Empty):
    """The queue has no item."""


class Full(queue.Full):
    """The queue has no room."""


class _QueueActor:
    """The actor behind a Queue."""

    def __init__(self, maxsize):
        self.maxsize = maxsize
        self.queue = asyncio.Queue(maxsize)

    def qsize(self):
        return self.queue.qsize()

    def empty(self):
        return self.queue.empty()

    def full(self):
        return self.queue.full()

    async def put(self, item, timeout=None):
        try:
            await asyncio.wait_for(self.queue.put(item), timeout)
        except asyncio.TimeoutError:
            raise Full from None

    async def get(self, timeout=None):
        try:
            return await asyncio.wait_for(self.queue.get(), timeout)
        except asyncio.TimeoutError:
            raise Empty from None

    def put_nowait(self, item):
        self.queue.put_nowait(item)

    def put_nowait_batch(self, items):
        if self.maxsize > 0 and len(items) + self.qsize() > self.maxsize:
            raise Full(f"Cannot add {len(items)} items to queue of size {self.qsize()} and maxsize {self.maxsize}.")
        for item in items:
            self.queue.put_nowait(item)

    def get_nowait(self):
        return self.queue.get_nowait()

    def get_nowait_batch(self, num_items):
        if num_items > self.qsize():
            raise Empty(f"Cannot get {num_items} items from queue of size {self.qsize()}.")
        return [self.queue.get_nowait() for _ in range(num_items)]


class Queue:
    """A queue for any number of processes, first in, first out."""

    def __init__(self, maxsize=0, actor_options=None):
        self.maxsize = maxsize
        self.actor = ray.remote(_QueueActor).options(**{"num_cpus": 0, **(actor_options or {})}).remote(maxsize)

    def __len__(self):
        return self.size()

    def size(self):
        """Return the number of items."""
        return ray.get(self.actor.qsize.remote())

    qsize = size

    def empty(self):
        """Return whether there is no item."""
        return ray.get(self.actor.empty.remote())

    def full(self):
        """Return whether there is no room for an item."""
        return ray.get(self.actor.full.remote())

    def put(self, item, block=True, timeout=None):
        """Add an item. Waits for room, at most timeout seconds, or raises Full."""
        if not block:
            try:
                ray.get(self.actor.put_nowait.remote(item))
            except asyncio.QueueFull:
                raise Full from None
            return
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        ray.get(self.actor.put.remote(item, timeout))

    async def put_async(self, item, block=True, timeout=None):
        """Add an item as put() does, in a coroutine."""
        if not block:
            try:
                await self.actor.put_nowait.remote(item)
            except asyncio.QueueFull:
                raise Full from None
            return
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        await self.actor.put.remote(item, timeout)

    def get(self, block=True, timeout=None):
        """Remove and return an item. Waits for one, at most timeout seconds, or raises Empty."""
        if not block:
            try:
                return ray.get(self.actor.get_nowait.remote())
            except asyncio.QueueEmpty:
                raise Empty from None
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        return ray.get(self.actor.get.remote(timeout))

    async def get_async(self, block=True, timeout=None):
        """Remove and return an item as get() does, in a coroutine."""
        if not block:
            try:
                return await self.actor.get_nowait.remote()
            except asyncio.QueueEmpty:
                raise Empty from None
        if timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        return await self.actor.get.remote(timeout)

    def put_nowait(self, item):
        """Add an item, or raise Full at once."""
        return self.put(item, block=False)

    def put_nowait_batch(self, items):
        """Add all items, or raise Full if there is no room for them."""
        if not isinstance(items, collections.abc.Iterable):
            raise TypeError("Argument 'items' must be an Iterable")
        ray.get(self.actor.put_nowait_batch.remote(list(items)))

    def get_nowait(self):
        """Remove and return an item, or raise Empty at once."""
        return self.get(block=False)

    def get_nowait_batch(self, num_items):
        """Remove and return that number of items, or raise Empty if there are fewer."""
        if not isinstance(num_items, int):
            raise TypeError("Argument 'num_items' must be an int")
        if num_items < 0:
            raise ValueError("'num_items' must be nonnegative")
        return ray.get(self.actor.get_nowait_batch.remote(num_items))

    def shutdown(self, force=False, grace_period_s=5):
        """End the actor."""
        if self.actor is not None:
            ray.kill(self.actor)
        self.actor = None
