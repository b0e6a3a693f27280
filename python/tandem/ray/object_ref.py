# SPDX-License-Identifier: Apache-2.0
"""References to values: ObjectRef, and ObjectRefGenerator for the items of a generator."""
import asyncio
import concurrent.futures
import os
import types

from tandem import _tandem
from tandem.ray import _futures
from tandem.ray import _runtime
from tandem.ray import _serialization
from tandem.ray.exceptions import (ActorUnschedulableError, RayActorError, RayError, TaskCancelledError,
                                   TaskPlacementGroupRemoved, TaskUnschedulableError, WorkerCrashedError)

_SLICE_MS = 50
_FIND_MS = 10000


class ObjectRef(_tandem.Ref):
    """A reference to a value that is there or will be. Calls and put() create it."""
    __slots__ = ("_id", "_is_large", "_is_task", "_group", "_actor_id", "_generator", "__weakref__")

    __class_getitem__ = classmethod(types.GenericAlias)

    def binary(self):
        """Return the ID, 28 bytes as in Ray, of which Tandem uses 16."""
        try:
            return self._id
        except AttributeError:
            self._id = self._new_id()
            return self._id

    def _new_id(self):
        """Return the ID; one that means nothing if the runtime has stopped."""
        if not _tandem.is_running():
            return os.urandom(28)
        return bytes.fromhex(self._object_id()) + bytes(12)

    def hex(self):
        """Return the ID as 56 hexadecimal digits."""
        return self.binary().hex()

    def task_id(self):
        """Return the ID of the task that makes the value, as far as Tandem knows one."""
        return self.binary()[:24]

    @classmethod
    def nil(cls):
        """Raise NotImplementedError, because there are no nil references."""
        raise NotImplementedError("tandem.ray has no nil references (feature: ObjectRef.nil)")

    def is_nil(self):
        """Return False, because a reference is never nil."""
        return False

    def __hash__(self):
        return hash(self.binary())

    def __eq__(self, other):
        return self is other or (isinstance(other, ObjectRef) and self.binary() == other.binary())

    def __repr__(self):
        return f"ObjectRef({self.hex()})"

    def __reduce__(self):
        _runtime.require_initialized()
        return _import_ref, (self._export(),)

    def future(self):
        """Return a concurrent.futures.Future of the value."""
        return _futures.future_of(self)

    def as_future(self, _internal=False):
        """Return an asyncio.Future of the value for the running loop."""
        return _futures.asyncio_future_of(self)

    def __await__(self):
        return self.as_future().__await__()


_tandem.set_ref_class(ObjectRef)


def _reduce_ref(ref, add):
    """Pickle a reference inside of a value."""
    return _load_ref, (add(ref),)


def _load_ref(index):
    """Rebuild a reference inside of a value."""
    return _serialization.get_object(index)


def _import_ref(form):
    """Rebuild a reference that was pickled by itself, as ray.cloudpickle.dumps(ref) does."""
    _runtime.require_initialized()
    return _tandem.import_ref(form)


_serialization.register_reducer(ObjectRef, _reduce_ref)


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
        self._ahead = None  # The next item, if wait() has found it.

    def __iter__(self):
        return self

    def __aiter__(self):
        return self

    def _next(self, timeout_ms=_SLICE_MS):
        """Return the next reference; None if it is not there within a time, False at the end."""
        if self._ahead is not None:
            ref, self._ahead = self._ahead, None
            return ref
        if self._stream is None:
            self._is_over = True
            return _serialization.put(TaskCancelledError(), _serialization.ERROR)
        try:
            return self._stream.next(timeout_ms)
        except RayError as error:
            # A failure of the actor is the last item, as in Ray.
            self._is_over = True
            return _serialization.put(error, _serialization.ERROR)

    def _is_ready(self, timeout_ms):
        """Return whether the next item or the end is there; waits for it at most a time."""
        if self._ahead is None and not self._is_over:
            ref = self._next(timeout_ms)
            if ref is None:
                return False
            if ref is False:
                self._is_over = True
            else:
                self._ahead = ref
        return True

    def __next__(self):
        while self._ahead is not None or not self._is_over:
            ref = self._next()
            if ref is False:
                self._is_over = True
            elif ref is not None:
                return ref
        raise StopIteration

    async def __anext__(self):
        loop = asyncio.get_running_loop()
        while self._ahead is not None or not self._is_over:
            ref = await loop.run_in_executor(None, self._next)
            if ref is False:
                self._is_over = True
            elif ref is not None:
                return ref
        raise StopAsyncIteration

    def cancel(self):
        """Cancel the generator; items that were not taken are lost."""
        self._stream = None

    def completed(self):
        """Return a reference to None that is there when the generator has ended, also by an exception of its own.

        It fails if the process of the generator dies.
        """
        if self._stream is None:
            return _serialization.put(TaskCancelledError(), _serialization.ERROR)
        ref = self._stream.completed()
        ref._is_task = hasattr(self, "_worker")
        ref._generator = self  # Without its reader the generator would be canceled.
        return ref


DynamicObjectRefGenerator = ObjectRefGenerator
StreamingObjectRefGenerator = ObjectRefGenerator
CancelledError = concurrent.futures.CancelledError
