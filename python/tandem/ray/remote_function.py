# SPDX-License-Identifier: Apache-2.0
"""Remote functions, run by a simple pool of workers.

Each process that calls remote functions has workers of its own, one set for each kind of resources and environment. A
call goes to an idle worker. Without one a new worker is created, up to a limit; beyond that the call queues behind the
shortest queue. A worker that was idle for a second is asked whether other processes need it, because they have
references to its values or because it has workers itself; one that is not needed is ended. Workers of functions that need CPUs only hold no CPUs: the
limit is how many of them fit into the CPUs of the cluster, and at least four, so that a function may wait for another.
"""
import functools
import inspect
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

_IDLE_SECONDS = 1.0
_WORKERS_MIN = 4
_DEFAULT_RETRIES = 3

# Name of the call that asks a worker whether it is needed.
IS_NEEDED = "__tandem_is_needed__"

_lock = threading.RLock()
_pools = {}
_reaper = None


class _Worker:
    """A worker of functions."""

    def __init__(self, actor):
        self.actor = actor
        self.calls_count = 0       # Calls whose results have not arrived.
        self.idle_since = time.monotonic()
        self.question = None       # The result of IS_NEEDED; None while the worker is not asked.

    def begin_call(self):
        """Count a call that has been made."""
        self.calls_count += 1
        self.question = None

    def on_done(self):
        """Count the end of a call."""
        with _lock:
            self.calls_count -= 1
            self.idle_since = time.monotonic()

    def may_end(self):
        """Return whether the worker is idle and not needed; asks it after a time."""
        if self.calls_count > 0 or time.monotonic() - self.idle_since < _IDLE_SECONDS:
            return False
        if self.question is None:
            self.question = self.actor.call(IS_NEEDED, _serialization.CALL, _serialization.NOTHING, None, None, None, 1, -2)
            return False
        if not _tandem.wait([self.question], 1, 0)[0]:
            return False
        try:
            is_needed = _serialization.read(self.question._get(0))
        except RayError:
            is_needed = False  # It has died.
        self.question = None
        self.idle_since = time.monotonic()  # The next time to ask.
        return not is_needed


class _Pool:
    """The workers for functions with the same resources and environment."""

    def __init__(self, options):
        self.creation, self.environment = _options.creation_of({**options, "num_cpus": 0}, 0)
        self.creation["max_restarts"] = -1
        self.limit = self._limit(options)
        self.workers = []

    @staticmethod
    def _limit(options):
        """Return how many workers there may be."""
        totals = {}
        for node in _tandem.list_nodes():
            for name, (total, _) in node["amounts"].items():
                totals[name] = totals.get(name, 0) + total
        wanted = {"GPU": options.get("num_gpus") or 0, **(options.get("resources") or {})}
        limits = [int(totals.get(name, 0) / amount) for name, amount in wanted.items() if amount]
        if limits:
            return max(1, min(limits))
        cpus = options.get("num_cpus", 1)
        return max(_WORKERS_MIN, int(totals.get("CPU", 1) / cpus) if cpus else 16)

    def worker(self):
        """Return the worker for the next call."""
        best = min(self.workers, key=lambda worker: worker.calls_count, default=None)
        if best is not None and (best.calls_count == 0 or len(self.workers) >= self.limit):
            return best
        more = {"class": None, "methods": {}, "class_name": "task_worker"}
        worker = _Worker(actor_module.create("task_worker", self.creation, self.environment, (), {}, more))
        self.workers.append(worker)
        return worker


def _reap():
    """End workers that are idle."""
    while True:
        time.sleep(_IDLE_SECONDS / 4)
        with _lock:
            for pool in _pools.values():
                pool.workers = [worker for worker in pool.workers if not _may_end(worker)]


def _may_end(worker):
    """Return whether to end a worker."""
    try:
        return worker.may_end()
    except RayError:
        return True  # It has died, or the runtime has stopped.


def has_workers():
    """Return whether this process has workers of functions."""
    with _lock:
        return any(pool.workers for pool in _pools.values())


def forget_workers():
    """Forget all workers, because the runtime stops."""
    with _lock:
        _pools.clear()


def _pool_of(options):
    """Return the pool for functions with these options."""
    global _reaper
    key = repr(sorted((name, value) for name, value in options.items()
                      if name not in ("num_returns", "name", "max_retries", "max_calls", "retry_exceptions")
                      and value is not None))
    pool = _pools.get(key)
    if pool is None:
        pool = _pools[key] = _Pool(options)
    if _reaper is None or not _reaper.is_alive():
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
            result = actor_module.submit(worker.actor, name, args, kwargs, num_returns, retries or -2, more)
            refs = result if isinstance(result, list) else [result] if isinstance(result, ObjectRef) else []
            for ref in refs:
                ref._is_task = True
            if isinstance(result, ObjectRefGenerator):
                result._worker = worker  # The worker lives as long as its generator.
                refs = [result._stream.completed()]
            if refs:
                worker.begin_call()
                _futures.on_done(refs[0], worker.on_done)
        return result

    def __reduce__(self):
        return RemoteFunction, (self._function, self._options)
