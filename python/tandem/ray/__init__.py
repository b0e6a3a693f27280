# SPDX-License-Identifier: Apache-2.0
"""Ray's actor API on Tandem. `tandem python` and `eval "$(tandem env)"` make it the module `ray`."""
import inspect
import time

from tandem import _tandem
from tandem.ray import _options
from tandem.ray import _serialization
from tandem.ray import exceptions
from tandem.ray._runtime import ensure_initialized, init, is_initialized, require_initialized, shutdown
from tandem.ray._runtime_env import RuntimeEnv
from tandem.ray.actor import ActorClass, ActorHandle, ActorID, exit_actor, get_actor, kill, method
from tandem.ray.object_ref import DynamicObjectRefGenerator, ObjectRef, ObjectRefGenerator, get_value
from tandem.ray.remote_function import RemoteFunction
from tandem.ray.runtime_context import RuntimeContext, get_gpu_ids, get_runtime_context
from tandem.ray import actor, cloudpickle, runtime_context, runtime_env, util
from tandem.ray._private import services as _services, state as _state, worker as _worker  # noqa: F401

# The release of Ray whose API this is.
__version__ = "2.60.0"
__commit__ = "tandem"
LOCAL_MODE, SCRIPT_MODE, WORKER_MODE = 2, 0, 1

_LARGE_BYTES = 100 * 1024
_WAIT_SLICE_S = 0.02  # Longest pause between two looks at a list with generators.


def remote(*args, **kwargs):
    """Make a class an actor class, or a function a remote function."""
    if len(args) == 1 and not kwargs and (inspect.isroutine(args[0]) or inspect.isclass(args[0])):
        return _make_remote(args[0], {})
    if args or not kwargs:
        raise AssertionError("The @ray.remote decorator must be applied either with no arguments and no parentheses, for "
                        "example '@ray.remote', or it must be applied using some of the arguments, for example "
                        "'@ray.remote(num_returns=2, resources={\"CustomResource\": 1})'.")
    return lambda decorated: _make_remote(decorated, kwargs)


def _make_remote(decorated, options):
    """Return the ActorClass or RemoteFunction of a class or function."""
    if inspect.isclass(decorated):
        _options.check(options, _options.ACTOR_OPTIONS, "actor")
        return ActorClass(decorated, options)
    if inspect.isfunction(decorated) or inspect.isbuiltin(decorated):
        _options.check(options, _options.FUNCTION_OPTIONS, "task")
        return RemoteFunction(decorated, options)
    raise AssertionError("The @ray.remote decorator must be applied to either a function or a class.")


def get(object_refs, *, timeout=None, _tensor_transport=None, _use_object_store=False):
    """Wait for the value of a reference, or for the values of a list of references."""
    if isinstance(object_refs, ObjectRef):
        return get_value(object_refs, timeout)  # There are no references without a runtime.
    ensure_initialized()
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if not isinstance(object_refs, list):
        raise ValueError(f"Invalid type of object refs, {type(object_refs)}, is given. 'object_refs' must either be an "
                         "ObjectRef or a list of ObjectRefs.")
    for ref in object_refs:
        if not isinstance(ref, ObjectRef):
            raise TypeError(f"Invalid type of object refs, {type(ref)}, is given. 'object_refs' must either be an "
                            "ObjectRef or a list of ObjectRefs.")
    if timeout is None:
        return [get_value(ref) for ref in object_refs]
    deadline = time.monotonic() + timeout
    return [get_value(ref, max(0, deadline - time.monotonic())) for ref in object_refs]


def put(value, *, _owner=None, _tensor_transport=None):
    """Store a value and return a reference to it."""
    ensure_initialized()
    if isinstance(value, ObjectRef):
        raise TypeError("Calling 'put' on an ray.ObjectRef is not allowed. If you really want to do this, you can wrap "
                        "the ray.ObjectRef in a list and call 'put' on it.")
    if _owner is not None:
        raise NotImplementedError("tandem.ray cannot give a value to another owner (feature: put(_owner=...))")
    head, buffers, objects = _serialization.dump(value)
    ref = _tandem.put(_serialization.VALUE, head, buffers, objects, None)
    ref._is_large = len(head) + sum(len(buffer) for buffer in buffers or ()) > _LARGE_BYTES
    return ref


def wait(refs, *, num_returns=1, timeout=None, fetch_local=True):
    """Wait until num_returns references are done and return (done, not done)."""
    ensure_initialized()
    if isinstance(refs, ObjectRef):
        raise TypeError("wait() expected a list of ray.ObjectRef or ObjectRefGenerator, got a single ray.ObjectRef")
    if not isinstance(refs, list):
        raise TypeError(f"wait() expected a list of ray.ObjectRef or ObjectRefGenerator, got {type(refs)}")
    for ref in refs:
        if not isinstance(ref, (ObjectRef, ObjectRefGenerator)):
            raise TypeError(f"wait() expected a list of ray.ObjectRef or ObjectRefGenerator, got list containing "
                            f"{type(ref)}")
    if not refs:
        return [], []
    if timeout is not None and timeout < 0:
        raise ValueError(f"The 'timeout' argument must be nonnegative. Received {timeout}")
    if len(set(refs)) != len(refs):
        raise ValueError("Wait requires a list of unique object refs.")
    if num_returns <= 0:
        raise ValueError("Invalid number of objects to return %d." % num_returns)
    if num_returns > len(refs):
        raise ValueError("num_returns cannot be greater than the number of objects provided to ray.wait")
    if any(isinstance(ref, ObjectRefGenerator) for ref in refs):
        done = _wait_with_generators(refs, num_returns, timeout)
    else:
        done = _tandem.wait(refs, num_returns, timeout)
    ready = [ref for ref, is_done in zip(refs, done) if is_done][:num_returns]
    chosen = set(ready)
    return ready, [ref for ref in refs if ref not in chosen]


def _wait_with_generators(refs, num_returns, timeout):
    """Wait like wait(); a generator counts as done while its next item or its end is there."""
    deadline = None if timeout is None else time.monotonic() + timeout
    values = [ref for ref in refs if isinstance(ref, ObjectRef)]
    while True:
        flags = iter(_tandem.wait(values, len(values), 0) if values else ())
        done = [next(flags) if isinstance(ref, ObjectRef) else ref._is_ready(0) for ref in refs]
        left = None if deadline is None else deadline - time.monotonic()
        if sum(map(bool, done)) >= num_returns or (left is not None and left <= 0):
            return done
        pause = _WAIT_SLICE_S if left is None else min(_WAIT_SLICE_S, left)
        waiting = next(ref for ref, is_done in zip(refs, done) if not is_done)
        if isinstance(waiting, ObjectRef):
            _tandem.wait([waiting], 1, pause)
        else:
            waiting._is_ready(int(pause * 1000))


def cancel(ref, *, force=False, recursive=True):
    """Cancel the call that makes the value of a reference."""
    if isinstance(ref, ObjectRefGenerator):
        if force and not hasattr(ref, "_worker"):
            raise ValueError("force=True is not supported for actor tasks.")
        ref.cancel()
        return
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"ray.cancel() only supported for object refs. For actors, try ray.kill(). Got: {type(ref)}.")
    if force and not getattr(ref, "_is_task", False):
        raise ValueError("force=True is not supported for actor tasks.")
    ref._cancel(force, recursive)


def nodes():
    """Return a dict about each node of the cluster."""
    require_initialized()
    from tandem.ray._runtime import node_ip_address
    return [{"NodeID": node["id"], "Alive": True, "NodeManagerAddress": _host_of(node) or node_ip_address(),
             "NodeManagerHostname": node["name"], "NodeName": _host_of(node) or node_ip_address(),
             "NodeManagerPort": 0, "ObjectManagerPort": 0, "ObjectStoreSocketName": "", "RayletSocketName": "",
             "MetricsExportPort": 0, "alive": True, "Labels": _labels_of(node), "DeathReason": 0,
             "DeathReasonMessage": "",
             "Resources": {name: total for name, (total, _) in node["amounts"].items() if total}}
            for node in _tandem.list_nodes()]


def _labels_of(node):
    """Return the labels of a node; its ID is one, as in Ray."""
    return {"ray.io/node-id": node["id"], **dict(text.split("=", 1) for text in node["labels"])}


def _host_of(node):
    """Return the host in the TCP address of a node; "" without one."""
    return node["tcp_address"].removeprefix("tcp:").rpartition(":")[0]


def _sum_of_resources(index):
    """Return the sums over all nodes of the total (0) or free (1) amounts."""
    require_initialized()
    sums = {}
    for node in _tandem.list_nodes():
        for name, amounts in node["amounts"].items():
            if amounts[0]:
                sums[name] = sums.get(name, 0.0) + amounts[index]
    return sums


def cluster_resources():
    """Return the total resources of the cluster."""
    return _sum_of_resources(0)


def available_resources():
    """Return the resources of the cluster that are free."""
    return {name: amount for name, amount in _sum_of_resources(1).items() if amount}


def timeline(filename=None):
    """Raise NotImplementedError; the command `tandem timeline` writes the timeline."""
    raise NotImplementedError("use the command `tandem timeline` (feature: timeline)")


def client(address=None):
    """Raise NotImplementedError, because there is no Ray client."""
    raise NotImplementedError("tandem.ray has no Ray client (feature: client)")


__all__ = ["ActorClass", "ActorHandle", "ActorID", "DynamicObjectRefGenerator", "LOCAL_MODE", "ObjectRef",
           "ObjectRefGenerator", "RemoteFunction", "RuntimeContext", "RuntimeEnv", "SCRIPT_MODE", "WORKER_MODE", "actor",
           "available_resources", "cancel", "client", "cloudpickle", "cluster_resources", "exceptions", "exit_actor",
           "get", "get_actor", "get_gpu_ids", "get_runtime_context", "init", "is_initialized", "kill", "method",
           "nodes", "put", "remote", "runtime_context", "runtime_env", "shutdown", "timeline", "util", "wait"]
