# SPDX-License-Identifier: Apache-2.0
"""The exceptions of Ray's API, and how Tandem's failures become exceptions."""
import pickle

import cloudpickle

from tandem import _tandem


class RayError(Exception):
    """Base of all exceptions of this package."""


class RaySystemError(RayError):
    """Something of Tandem failed, not the user's code."""


class RayTaskError(RayError):
    """A method or function raised an exception.

    get() raises an object that is also an instance of the type of that exception (as_instanceof_cause).
    """

    def __init__(self, function_name="", traceback_str="", cause=None, pid=0, ip=""):
        super().__init__(function_name, traceback_str)
        self.function_name = function_name
        self.traceback_str = traceback_str
        self.cause = cause
        self.pid = pid
        self.ip = ip
        if isinstance(cause, BaseException):
            self.__cause__ = cause

    def __str__(self):
        return self.traceback_str

    def __reduce__(self):
        try:
            cause = cloudpickle.dumps(self.cause, 5)
            pickle.loads(cause)  # Some exceptions can be pickled only.
        except Exception:
            cause = None
        return _task_error_of, (self.function_name, self.traceback_str, cause, self.pid, self.ip)

    def as_instanceof_cause(self):
        """Return an exception that is an instance of RayTaskError and of the cause's type."""
        if not isinstance(self.cause, Exception) or isinstance(self.cause, RayError):
            return self.cause if isinstance(self.cause, RayError) else self
        cause_class = type(self.cause)
        try:
            cls = _dual_class(cause_class)
            error = _new_object(cls)
            error.__dict__.update(getattr(self.cause, "__dict__", {}))
            error.args = self.cause.args
        except TypeError:
            return self  # The class cannot be a base.
        for name in ("function_name", "traceback_str", "cause", "pid", "ip"):
            setattr(error, name, getattr(self, name))
        error.__cause__ = self.cause
        return error


def _task_error_of(function_name, traceback_str, cause, pid, ip):
    """Rebuild a pickled RayTaskError."""
    return RayTaskError(function_name, traceback_str, None if cause is None else pickle.loads(cause), pid, ip)


_dual_classes = {}


def _dual_class(cause_class):
    """Return a class with the bases RayTaskError and `cause_class`, one for each cause_class."""
    cls = _dual_classes.get(cause_class)
    if cls is None:
        def reduce(self):
            return _dual_error_of, (RayTaskError.__reduce__(self),)

        name = f"RayTaskError({cause_class.__name__})"
        cls = type(name, (RayTaskError, cause_class),
                   {"__str__": RayTaskError.__str__, "__reduce__": reduce, "__qualname__": name,
                    "__module__": cause_class.__module__})
        _dual_classes[cause_class] = cls
    return cls


def _new_object(cls):
    """Return an object of a dual class, without a call of any __init__()."""
    try:
        return cls.__new__(cls)
    except TypeError:
        return Exception.__new__(cls)  # MemoryError's __new__() refuses classes with two bases.


def _dual_error_of(reduced):
    """Rebuild a pickled exception of a dual class."""
    return reduced[0](*reduced[1]).as_instanceof_cause()


class TaskCancelledError(RayError):
    """The call was cancelled."""

    def __init__(self, message="This task or its dependency was cancelled"):
        super().__init__(message)


class GetTimeoutError(RayError, TimeoutError):
    """A value was not there within the timeout."""


class RayActorError(RayError):
    """An actor cannot reply."""

    def __init__(self, message="The actor died unexpectedly before finishing this task.", actor_id=None):
        super().__init__(message)
        self.error_msg = message
        self.actor_id = actor_id


class ActorDiedError(RayActorError):
    """The actor has died and is not restarted."""

    @property
    def actor_init_failed(self):
        """Return whether the constructor of the actor failed."""
        return "its constructor" in self.error_msg


class ActorAlreadyExistsError(ValueError, RayError):
    """Another actor has the name."""


class UnserializableException(RayError):
    """A method raised an exception that cannot be sent to the caller."""


class ActorPlacementGroupRemoved(RayError):
    """The placement group of the actor was removed."""


class TaskPlacementGroupRemoved(RayError):
    """The placement group of the task was removed."""


class ActorUnavailableError(RayActorError):
    """The actor is being restarted or cannot be reached at the moment."""


class ActorUnschedulableError(RayError):
    """No node can ever hold the actor."""


class TaskUnschedulableError(RayError):
    """No node can ever run the task."""


class WorkerCrashedError(RayError):
    """The worker that ran a task died."""

    def __init__(self, message="The worker died unexpectedly while executing this task."):
        super().__init__(message)


class LocalRayletDiedError(RayError):
    """The daemon of this node has died."""


class NodeDiedError(RayError):
    """The node has died."""


class ObjectLostError(RayError):
    """The value is lost."""


class ObjectFetchTimedOutError(ObjectLostError):
    """The value could not be fetched in time."""


class ReferenceCountingAssertionError(ObjectLostError, AssertionError):
    """The value was freed although there are references to it."""


class ObjectFreedError(ObjectLostError):
    """The value was freed with internal.free()."""


class OwnerDiedError(ObjectLostError):
    """The process that owns the value has died."""


class ObjectReconstructionFailedError(ObjectLostError):
    """The value could not be computed again."""


class ObjectStoreFullError(RayError):
    """The value does not fit into the memory for values."""


class OutOfDiskError(RayError):
    """There is no disk space for values."""


class OutOfMemoryError(RayError):
    """A worker was killed because the node lacked memory."""


class PendingCallsLimitExceeded(RayError):
    """More calls than max_pending_calls wait for a reply."""


class RuntimeEnvSetupError(RayError):
    """The runtime environment could not be set up."""


class RpcError(RayError):
    """A message to another process failed."""


class AsyncioActorExit(RayError):
    """Ends an asynchronous actor."""


class PlasmaObjectNotAvailable(RayError):
    """The value is not there yet."""


class CrossLanguageError(RayError):
    """A value of a program in another language cannot be read."""


_CLASSES = {
    _tandem.E_TIMEOUT: GetTimeoutError, _tandem.E_CANCELED: TaskCancelledError, _tandem.E_ACTOR_DIED: ActorDiedError,
    _tandem.E_ACTOR_RESTARTING: ActorUnavailableError, _tandem.E_ACTOR_UNAVAILABLE: ActorUnavailableError,
    _tandem.E_OWNER_DIED: OwnerDiedError,
    _tandem.E_VALUE_LOST: ObjectFreedError, _tandem.E_NODE_LOST: LocalRayletDiedError,
    _tandem.E_NO_RESOURCES: ActorUnschedulableError, _tandem.E_AGAIN: PendingCallsLimitExceeded,
    _tandem.E_LIMIT: ObjectStoreFullError, _tandem.E_INVAL: ValueError, _tandem.E_NOT_FOUND: ValueError,
    _tandem.E_EXISTS: ValueError, _tandem.E_UNSUPPORTED: NotImplementedError,
}


def _exception_of(status, text, detail):
    """Return the exception for a failure of libtandem."""
    error = _CLASSES.get(status, RaySystemError)(f"{text}: {detail}" if detail else text)
    error._tandem_status = status
    return error


_tandem.set_failure_factory(_exception_of)
