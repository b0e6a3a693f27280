# SPDX-License-Identifier: Apache-2.0
"""Remote functions, run by a simple pool of workers.

Each process that calls remote functions has workers of its own, one set for each kind of resources and environment. A
worker is an actor that holds the resources of its function, one CPU by default. A call goes to an idle worker. Without
one a new worker is created, which waits until its resources are free; beyond a limit the call queues behind the
shortest queue. An idle worker takes the calls of one that waits for resources. A function that waits for a reference lends its CPUs to others meanwhile, so that a function may wait
for another. A worker that becomes idle is asked after a moment, and at once if another one waits for resources, whether
other processes need it, because they have references to its values or because it has workers itself. One that is not
needed is ended; one that is needed, or whose generator has not been read to its end, lends its CPUs and runs no more
calls.
"""
import collections
import functools
import inspect
import select
import threading
import time

import cloudpickle

from tandem import _tandem
from tandem.ray import _futures
from tandem.ray import _options
from tandem.ray import _runtime
from tandem.ray import _serialization
from tandem.ray import actor as actor_module
from tandem.ray.exceptions import RayError
from tandem.ray.object_ref import ObjectRef, ObjectRefGenerator

_IDLE_SECONDS = 0.3
_WORKERS_MIN = 16     # The limit of workers is at least this, so that a function may wait for another.
_POLL_SECONDS = 0.02  # Between two looks for results, in a process that libtandem does not tell of them.
_DEFAULT_RETRIES = 3

# Name of the call that asks a worker whether it is needed.
IS_NEEDED = "__tandem_is_needed__"
# Options of a function that do not matter for which worker runs it.
_OF_CALLS = frozenset(("num_returns", "name", "max_retries", "max_calls", "retry_exceptions"))

_lock = threading.RLock()
_pools = {}
_reaper = None
_notices = None  # Tells of results; they are taken while _lock is held.


class _Worker:
    """A worker of functions."""

    def __init__(self, actor, pool):
        self.actor = actor
        self.pool = pool
        self.calls_count = 0  # Calls whose results have not arrived.
        self.results = collections.deque()  # A result of each of these calls, in order.
        self.idle_since = time.monotonic()
        self.is_placed = False  # Whether the worker is known to have its resources.
        self.is_kept = False  # Whether the worker is kept for its values only.
        self.question = None  # The result of IS_NEEDED; None while the worker is not asked.
        self.successor = None  # The worker that has taken over the calls of this one.

    def begin(self, ref):
        """Count a call until its result has arrived."""
        self.calls_count += 1
        self.question = None
        self.results.append(ref)
        if _futures.notices_are_prompt:
            _tandem.watch(ref, self.look_for_results, _notices)

    def end(self):
        """Count the end of a call."""
        self.calls_count -= 1
        self.idle_since = time.monotonic()
        if self.calls_count == 0 and not self.is_kept and not self.take_over_calls() and _is_any_waiting():
            self.ask()

    def take_over_calls(self):
        """Take the calls of a worker of the same pool that waits for resources; return whether there is one."""
        for other in list(self.pool.workers):
            if other.calls_count > 0 and other.waits_for_resources() and other.actor.move_calls(self.actor):
                self.pool.remove(other)
                self.calls_count, self.results = other.calls_count, other.results
                self.question = None
                other.calls_count, other.results, other.successor = 0, collections.deque(), self
                other.actor = self.actor  # The one that waits ends without its handle.
                return True
        return False

    def ask(self):
        """Ask the worker whether it is needed; it ends if not."""
        if self.question is not None:
            return
        try:
            self.question = self.actor.call(IS_NEEDED, _serialization.CALL, _serialization.NOTHING, None, None, None, 1,
                                            -2)
        except RayError:
            self.pool.remove(self)  # It has died.
            return
        if _futures.notices_are_prompt:
            _tandem.watch(self.question, self.look_for_answer, _notices)

    def look_for_answer(self):
        """Take the answer of the worker, if it is there: end the worker, or keep it for its values."""
        if self.question is None or not _tandem.wait([self.question], 1, 0)[0]:
            return
        try:
            self.is_kept = _serialization.read(self.question._get(0))
        except RayError:
            self.is_kept = False  # It has died.
        self.question = None
        self.idle_since = time.monotonic()
        if not self.is_kept:
            self.pool.remove(self)

    def look_for_results(self):
        """Count the calls that have ended. A worker runs its calls in order."""
        if self.successor is not None:
            self.successor.look_for_results()
        while self.results and _tandem.wait([self.results[0]], 1, 0)[0]:
            self.results.popleft()
            self.end()

    def waits_for_resources(self):
        """Return whether the worker has no place yet."""
        if not self.is_placed:
            try:
                self.is_placed = bool(self.actor.wait_ready(0))
            except RayError:
                self.pool.remove(self)  # It will never have one; its callers will read why.
                return False
        return not self.is_placed

    def is_usable(self):
        """Return whether the worker may still run calls."""
        try:
            self.actor.wait_ready(0)
        except (RayError, ValueError):
            return False
        return True


class _Pool:
    """The workers for functions with the same resources and environment."""

    def __init__(self, options):
        self.creation, self.environment = _options.creation_of(options, 1)
        self.creation["max_restarts"] = -1
        self.limit = self._limit(options)
        self.workers = []

    @staticmethod
    def _limit(options):
        """Return how many workers there may be: twice as many as the cluster has resources for."""
        totals = {}
        for node in _tandem.list_nodes():
            for name, (total, _) in node["amounts"].items():
                totals[name] = totals.get(name, 0) + total
        cpus = options.get("num_cpus")
        wanted = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus") or 0,
                  **(options.get("resources") or {})}
        fits = [int(totals.get(name, 0) / amount) for name, amount in wanted.items() if amount]
        return max(_WORKERS_MIN, 2 * min(fits, default=0))

    def worker(self):
        """Return the worker for the next call."""
        for worker in list(self.workers):  # A caller that has its result finds the worker idle.
            worker.look_for_results()
        best = self._best()
        while best is not None and best.calls_count == 0 and not best.is_usable():
            self.remove(best)
            best = self._best()
        if best is not None and (best.calls_count == 0 or len(self.workers) >= self.limit):
            return best
        more = {"class": None, "methods": {}, "class_name": "task_worker"}
        actor = actor_module.create("task_worker", self.creation, self.environment, (), {}, more)
        worker = _Worker(actor, self)
        self.workers.append(worker)
        return worker

    def _best(self):
        """Return the worker with the fewest calls that is not kept for its values only; None without one."""
        return min((worker for worker in self.workers if not worker.is_kept), key=lambda worker: worker.calls_count,
                   default=None)

    def remove(self, worker):
        """Let a worker end when its calls have ended."""
        if worker in self.workers:
            self.workers.remove(worker)


def _is_any_waiting():
    """Return whether a worker with calls waits for resources."""
    return any(worker.calls_count > 0 and worker.waits_for_resources()
               for pool in _pools.values() for worker in list(pool.workers))


def _take_notices():
    """Look for what the notices tell of."""
    while (callback := _notices.take(0)) is not None:
        callback()


def _end_idle_workers():
    """End the workers that are idle for long enough."""
    now = time.monotonic()
    for pool in _pools.values():
        for worker in list(pool.workers):
            worker.look_for_results()
            worker.look_for_answer()
            if worker.calls_count == 0 and now - worker.idle_since >= _IDLE_SECONDS:
                worker.ask()


def _reap():
    """Take notices, and end idle workers; keeps no reference to a worker meanwhile, which would keep it alive."""
    while True:
        if _futures.notices_are_prompt:
            select.select([_notices.descriptor()], [], [], _IDLE_SECONDS / 2)
        else:
            time.sleep(_POLL_SECONDS)
        if _tandem.is_running():
            with _lock:
                _take_notices()
                _end_idle_workers()


def has_workers():
    """Return whether this process has workers of functions."""
    with _lock:
        return any(pool.workers for pool in _pools.values())


def forget_workers():
    """Forget all workers, because the runtime stops."""
    with _lock:
        _pools.clear()


def _describe_strategy(strategy):
    """Return a text that is the same for strategies that mean the same."""
    fields = getattr(strategy, "__dict__", None)
    if fields is None:
        return repr(strategy)
    return type(strategy).__name__ + repr(sorted((name, repr(value)) for name, value in fields.items()))


def _pool_of(options):
    """Return the pool for functions with these options."""
    global _notices, _reaper
    key = repr(sorted((name, _describe_strategy(value) if name == "scheduling_strategy" else repr(value))
                      for name, value in options.items() if name not in _OF_CALLS and value is not None))
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = _Pool(options)
    if _reaper is None or not _reaper.is_alive():
        _notices = _tandem.Notices()
        _reaper = threading.Thread(target=_reap, name="tandem-reaper", daemon=True)
        _reaper.start()
    return pool


class RemoteFunction:
    """A function that workers run; .remote() calls it."""

    def __init__(self, function, options):
        if inspect.iscoroutinefunction(function):
            raise ValueError("'async def' should not be used for remote tasks. You can wrap the async function with "
                             "`asyncio.run(f())`.")
        self._function = function
        self._options = options
        self._pickle = None
        functools.update_wrapper(self, function)

    def __call__(self, *args, **kwargs):
        raise TypeError(f"Remote functions cannot be called directly. Instead of running '{self._function.__name__}()'"
                        f", try '{self._function.__name__}.remote()'.")

    def options(self, **options):
        """Return the function with other options."""
        _options.check(options, _options.FUNCTION_OPTIONS, "task")
        function = RemoteFunction(self._function, {**self._options, **options})
        function._pickle = self._pickle
        return function

    def bind(self, *args, **kwargs):
        """Raise NotImplementedError, because there are no compiled graphs."""
        raise NotImplementedError("tandem.ray has no compiled graphs (feature: RemoteFunction.bind)")

    def remote(self, *args, **kwargs):
        """Call the function in a worker and return a reference to its result."""
        _runtime.ensure_initialized()
        if self._pickle is None:
            self._pickle = cloudpickle.dumps(self._function, 5)
        inspect.signature(self._function).bind(*args, **kwargs)
        num_returns = self._options.get("num_returns")
        if num_returns is None:
            num_returns = "streaming" if inspect.isgeneratorfunction(self._function) else 1
        if num_returns == "streaming" and not inspect.isgeneratorfunction(inspect.unwrap(self._function)):
            raise ValueError(f"num_returns=\"streaming\" needs a generator, and {self._function.__name__}() does not yield")
        retries = self._options.get("max_retries")
        retries = _DEFAULT_RETRIES if retries is None else retries
        more = {"function": self._pickle}
        if num_returns == "streaming" and self._options.get(actor_module.BACKPRESSURE):
            more["ahead"] = self._options[actor_module.BACKPRESSURE]
        if self._options.get("retry_exceptions"):
            more["retry"] = (retries, self._options["retry_exceptions"])
        name = self._options.get("name") or self._function.__name__
        with _lock:
            worker = _pool_of(self._options).worker()
            # A call without results has one here, which tells of its end.
            result = actor_module.submit(worker.actor, name, args, kwargs, num_returns or 1, retries or -2, more)
            if isinstance(result, ObjectRefGenerator):
                result._worker = worker  # The worker lives as long as its generator.
                worker.begin(result._stream.completed())
                return result
            refs = result if isinstance(result, list) else [result]
            for ref in refs:
                ref._is_task = True
                ref._group = worker.pool.creation.get("group_parts")
            worker.begin(refs[0])
        return None if num_returns == 0 else result

    def __reduce__(self):
        return RemoteFunction, (self._function, self._options)
