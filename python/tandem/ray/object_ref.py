# SPDX-License-Identifier: Apache-2.0
"""References to values: ObjectRef, and ObjectRefGenerator for the items of a generator."""
import asyncio
import concurrent.futures
import os
import types

from tandem import _tandem
from tandem.ray import _futures
from tandem.ray import _serialization
from tandem.ray.exceptions import (ActorUnschedulableError, RayActorError, RayError, TaskCancelledError,
                                   TaskPlacementGroupRemoved, TaskUnschedulableError, WorkerCrashedError)

_SLICE_MS = 50
_FIND_MS = 10000


class ObjectRef(_tandem.Ref):
    """A reference to a value that is there or will be. Calls and put() create it."""
    __slots__ = ("_id", "_is_large", "_is_task", "_group", "_actor_id", "__weakref__")

    __class_getitem__ = classmethod(types.GenericAlias)

    def binary(self):
        """Return the ID, 28 bytes."""
        try:
            return self._id
        except AttributeError:
            self._id = os.urandom(28)
            return self._id

    def hex(self):
        """Return the ID as 56 hexadecimal digits."""
        return self.binary().hex()

    def task_id(self):
        """Return the ID of the task that makes the value, as far as Tandem knows one."""
        return self.binary()[:24]

    @classmethod
    def nil(cls):
        raise NotImplementedError("tandem.ray has no nil references (feature: ObjectRef.nil)")

    def is_nil(self):
        return False

    def __hash__(self):
        return hash(self.binary())

    def __eq__(self, other):
        return self is other or (isinstance(other, ObjectRef) and self.binary() == other.binary())

    def __repr__(self):
        return f"ObjectRef({self.hex()})"

    def __reduce__(self):
        return _load_ref, (_serialization.add_object(self), self.binary())

    def future(self):
        """Return a concurrent.futures.Future of the value."""
        return _futures.future_of(self)

    def as_future(self, _internal=False):
        """Return an asyncio.Future of the value for the running loop."""
        return asyncio.wrap_future(self.future())

    def __await__(self):
        return self.as_future().__await__()


_tandem.set_ref_class(ObjectRef)


def _load_ref(index, binary):
    """Rebuild a pickled reference."""
    ref = _serialization.get_object(index)
    ref._id = binary
    return ref


def get_value(ref, timeout=None):
    """Wait for the value of one reference and return it, or raise what it failed with."""
    try:
        parts = ref._get(timeout)
    except (RayActorError, ActorUnschedulableError) as error:
        if getattr(ref, "_is_task", False):
            raise _task_failure(ref, error) from None
        error.actor_id = getattr(ref, "_actor_id", None)
        raise
    return _serialization.read(parts)


def _task_failure(ref, error):
    """Return the exception of a function whose worker has failed with `error`."""
    if isinstance(error, ActorUnschedulableError):
        return TaskUnschedulableError(str(error))
    group = getattr(ref, "_group", None)
    if group is not None:
        try:
            _tandem.find_group_by_id(group[0], _FIND_MS)
        except ValueError:
            return TaskPlacementGroupRemoved("The placement group corresponding to this task has been removed.")
    return WorkerCrashedError(str(error))


class ObjectRefGenerator:
    """The items that a generator yields: an iterator of references, also for `async for`."""

    def __init__(self, stream):
        self._stream = stream
        self._is_over = False
        self._on_over = None  # Called once at the end of the items of a function.
        self._ahead = None  # The next item, if wait() has found it.

    def __iter__(self):
        return self

    def __aiter__(self):
        return self

    def _end(self):
        """Remember that there are no more items."""
        self._is_over = True
        if self._on_over is not None:
            self._on_over()

    def _next(self, timeout_ms=_SLICE_MS):
        """Return the next reference; None if it is not there within a time, False at the end."""
        if self._ahead is not None:
            ref, self._ahead = self._ahead, None
            return ref
        if self._stream is None:
            self._end()
            return _serialization.put(TaskCancelledError(), _serialization.ERROR)
        try:
            return self._stream.next(timeout_ms)
        except RayError as error:
            # A failure of the actor is the last item, as in Ray.
            self._end()
            return _serialization.put(error, _serialization.ERROR)

    def _is_ready(self, timeout_ms):
        """Return whether the next item or the end is there; waits for it at most a time."""
        if self._ahead is None and not self._is_over:
            ref = self._next(timeout_ms)
            if ref is None:
                return False
            if ref is False:
                self._end()
            else:
                self._ahead = ref
        return True

    def __next__(self):
        while self._ahead is not None or not self._is_over:
            ref = self._next()
            if ref is False:
                self._end()
            elif ref is not None:
                return ref
        raise StopIteration

    async def __anext__(self):
        loop = asyncio.get_running_loop()
        while self._ahead is not None or not self._is_over:
            ref = await loop.run_in_executor(None, self._next)
            if ref is False:
                self._end()
            elif ref is not None:
                return ref
        raise StopAsyncIteration

    def cancel(self):
        """Cancel the generator; items that were not taken are lost."""
        self._stream = None
        if self._on_over is not None:
            self._on_over()

    def completed(self):
        raise NotImplementedError("tandem.ray has no reference to the end of a generator "
                                  "(feature: ObjectRefGenerator.completed)")


DynamicObjectRefGenerator = ObjectRefGenerator
StreamingObjectRefGenerator = ObjectRefGenerator
CancelledError = concurrent.futures.CancelledError
