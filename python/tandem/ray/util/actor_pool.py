# SPDX-License-Identifier: Apache-2.0
"""ray.util.ActorPool: distributes calls to a pool of actors."""


class ActorPool:
    """A pool of actors, each of which runs one call at a time."""

    def __init__(self, actors):
        self._idle = list(actors)
        self._actor_of = {}      # Reference -> (index, actor) of the calls that run.
        self._ref_of = {}        # Index -> reference.
        self._next_index = 0     # Index of the next call.
        self._next_return = 0    # Index of the next result in order.
        self._waiting = []       # Calls without an actor.

    def map(self, fn, values):
        """Yield fn(actor, value) of each value, in order."""
        return self._map(fn, values, self.get_next)

    def map_unordered(self, fn, values):
        """Yield fn(actor, value) of each value, as they come."""
        return self._map(fn, values, self.get_next_unordered)

    def _map(self, fn, values, take):
        """Drop the results that were not taken, submit the values, and yield what take() returns."""
        while self.has_next():
            try:
                take(timeout=0)
            except TimeoutError:
                pass
        for value in values:
            self.submit(fn, value)

        def results():
            while self.has_next():
                yield take()
        return results()

    def submit(self, fn, value):
        """Call fn(actor, value) with an idle actor, now or later; fn returns a reference."""
        if not self._idle:
            self._waiting.append((fn, value))
            return
        actor = self._idle.pop()
        ref = fn(actor, value)
        key = tuple(ref) if isinstance(ref, list) else ref
        self._actor_of[key] = (self._next_index, actor)
        self._ref_of[self._next_index] = ref
        self._next_index += 1

    def has_next(self):
        """Return whether there are results that were not taken."""
        return bool(self._actor_of)

    def get_next(self, timeout=None, ignore_if_timedout=False):
        """Return the next result, in order."""
        from tandem import ray
        if not self.has_next():
            raise StopIteration("No more results to get")
        if self._next_return >= self._next_index:
            raise ValueError("It is not allowed to call get_next() after get_next_unordered().")
        ref = self._ref_of[self._next_return]
        if timeout is not None:
            done, _ = ray.wait([ref], timeout=timeout)
            if not done:
                if not ignore_if_timedout:
                    raise TimeoutError("Timed out waiting for result")
                raise TimeoutError("Timed out waiting for result")
        del self._ref_of[self._next_return]
        self._next_return += 1
        _, actor = self._actor_of.pop(tuple(ref) if isinstance(ref, list) else ref)
        self._return_actor(actor)
        return ray.get(ref)

    def get_next_unordered(self, timeout=None, ignore_if_timedout=False):
        """Return any result that is there."""
        from tandem import ray
        if not self.has_next():
            raise StopIteration("No more results to get")
        done, _ = ray.wait(list(self._actor_of), num_returns=1, timeout=timeout)
        if not done:
            raise TimeoutError("Timed out waiting for result")
        index, actor = self._actor_of.pop(done[0])
        self._return_actor(actor)
        del self._ref_of[index]
        self._next_return = max(self._next_return, index + 1)
        return ray.get(done[0])

    def _return_actor(self, actor):
        """Give the actor a waiting call, or let it be idle."""
        self._idle.append(actor)
        if self._waiting:
            self.submit(*self._waiting.pop(0))

    def has_free(self):
        """Return whether an actor is idle and no call waits."""
        return len(self._idle) > 0 and not self._waiting

    def pop_idle(self):
        """Remove an idle actor from the pool and return it; None without one."""
        return self._idle.pop() if self.has_free() else None

    def push(self, actor):
        """Add an actor to the pool."""
        busy = [running for _, running in self._actor_of.values()]
        if actor in self._idle or actor in busy:
            raise ValueError("Actor already belongs to current ActorPool")
        self._return_actor(actor)
