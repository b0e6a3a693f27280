# SPDX-License-Identifier: Apache-2.0
"""The actor side: constructs the object of a worker and runs its methods.

libtandem calls construct() once and dispatch() for each call, on the main thread. What dispatch() does depends on the
class: a plain class runs the method at once; a class with max_concurrency or concurrency groups hands the call to a
thread of the group; a class with coroutine methods hands it to an event loop, which has a thread of its own. Workers of
remote functions are plain.
"""
import asyncio
import atexit
import concurrent.futures
import contextvars
import functools
import inspect
import itertools
import os
import pickle
import signal
import sys
import threading
import time
import traceback

import cloudpickle

from tandem import _output
from tandem import _tandem
from tandem.ray import _futures
from tandem.ray import _runtime
from tandem.ray import _serialization
from tandem.ray import actor as actor_module
from tandem.ray import remote_function
from tandem.ray.exceptions import (ActorDiedError, RayError, RayTaskError, TaskCancelledError,
                                   UnserializableException)
from tandem.ray.object_ref import get_value

_DEFAULT_GROUP = "_default"
_ASYNCHRONOUS_CONCURRENCY = 1000


class _State:
    """Describes the worker that this process is."""
    instance = None       # The user's object; None in a worker of functions.
    class_name = ""
    methods = {}          # Options of the methods, for get_actor().
    is_asynchronous = False
    loop = None           # The event loop of an asynchronous actor, else None.
    semaphores = {}       # Of an asynchronous actor: limits of its concurrency groups.
    executors = {}        # Of a threaded actor: threads of its concurrency groups.
    functions = {}        # Of a worker of functions: unpickled functions by their pickles.
    notices = None        # Where cancellations are posted, in an asynchronous actor and in a worker of functions.
    running = None        # In a worker of functions: a token of the call that runs, else None.
    lock = threading.Lock()  # Guards `running` and its interruption.
    lends_cpus = False    # In a worker of functions: whether it has been asked to end, and lends its CPUs.
    groups_of_methods = {}  # Concurrency group of each method that names one.


# Name, number and Call of the call that runs, or None.
current_method = contextvars.ContextVar("current_method", default=None)

_calls_counter = itertools.count(1)

# ---- arguments -----------------------------------------------------------------------------


def _read_arguments(parts):
    """Return (args, kwargs, more) of a call; references among the arguments are replaced by their values."""
    _, head, buffers, objects, awaited = parts
    args, kwargs, more = _serialization.load(head, buffers, objects)
    places = more.get("places") if more else None
    if places:
        args = list(args)
        for key, index in places:
            target = args if isinstance(key, int) else kwargs
            target[key] = get_value(target[key]) if index is None else _serialization.read(awaited[index])
    return args, kwargs, more


# ---- replies -------------------------------------------------------------------------------


def _task_error(name, error):
    """Return the exception that the caller gets for one of a method."""
    if isinstance(error, (RayTaskError, ActorDiedError)):
        return error  # Of another task or actor: it passes on unchanged.
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    label = f"{_State.class_name}.{name}" if _State.instance is not None else name
    return RayTaskError(label, f"ray::{label}() (pid={os.getpid()})\n{text}", error, os.getpid(), "")


def _dump_error(error):
    """Return (ERROR, pickle, buffers, None, None) of an exception, without its cause if that cannot be pickled."""
    try:
        if isinstance(error, RayTaskError) and not isinstance(error.cause, RayError):
            cause = cloudpickle.dumps(error.cause, 5)
            try:
                pickle.loads(cause)
            except Exception:
                error = UnserializableException("The exception cannot be unpickled:\n" + error.traceback_str)
        head, buffers, objects = _serialization.dump(error)
        if objects:
            raise TypeError
    except Exception:
        error = RayTaskError(error.function_name, error.traceback_str, None, error.pid) if isinstance(
            error, RayTaskError) else RayError(str(error))
        head, buffers, objects = _serialization.dump(error)
    return _serialization.ERROR, head, buffers, None, None


def _reply_error(call, name, error, kind):
    """Reply with an exception, once for each result."""
    parts = _dump_error(_task_error(name, error))
    if kind == _serialization.STREAM:
        try:
            call.send_item(*parts)
        except RayError:
            return  # The caller reads no more items.
        call.reply(_serialization.VALUE, _serialization.NOTHING, None, None, None)
    elif kind >= _serialization.SEVERAL:
        call.reply_several([parts] * (kind - _serialization.SEVERAL))
    else:
        call.reply(*parts)


def _reply(call, name, value, kind):
    """Reply with what a method returned."""
    try:
        if kind >= _serialization.SEVERAL:
            count = kind - _serialization.SEVERAL
            values = list(value) if isinstance(value, (list, tuple)) or hasattr(value, "__iter__") else None
            if values is None or len(values) != count:
                raise ValueError(f"Task returned {'a non-iterable' if values is None else len(values)} objects, but "
                                 f"num_returns={count}.")
            call.reply_several([(_serialization.VALUE, *_serialization.dump(item), None) for item in values])
        else:
            call.reply(_serialization.VALUE, *_serialization.dump(value), None)
    except Exception as error:
        _reply_error(call, name, error, kind)


def _set_items_ahead(call, more):
    """Let the generator be ahead of its reader as far as the caller wants; Ray's default is without a limit."""
    call.set_items_ahead(max((more or {}).get("ahead", 0), 0))


def _send_items(call, name, items, more):
    """Send the items of a generator and end the stream."""
    try:
        _set_items_ahead(call, more)
        if not hasattr(items, "__next__"):
            raise ValueError(f"Streaming generator expects a generator, but {name} returned {type(items)}")
        for item in items:
            call.send_item(_serialization.VALUE, *_serialization.dump(item), None)
    except TaskCancelledError:
        close = getattr(items, "close", None)
        if close is not None:
            close()
    except SystemExit:
        _reply_exit(call, name, _serialization.STREAM)
        return
    except Exception as error:
        _reply_error(call, name, error, _serialization.STREAM)
        return
    call.reply(_serialization.VALUE, _serialization.NOTHING, None, None, None)


# ---- running -------------------------------------------------------------------------------


def _find(name, more):
    """Return the function that a call runs."""
    if _State.instance is None:
        function = _State.functions.get(more["function"])
        if function is None:
            function = _State.functions[more["function"]] = pickle.loads(more["function"])
        return function
    if name == "__ray_call__":
        return lambda function, *args, **kwargs: function(_State.instance, *args, **kwargs)
    if name == "__ray_ready__":
        return lambda *args: True
    if name == "__ray_terminate__":
        return lambda *args: _exit()
    return getattr(_State.instance, name)


def _exit():
    """End this actor after the present call."""
    _tandem.exit_actor()


def _reply_exit(call, name, kind):
    """End this actor, or the process of a function, because a method has raised SystemExit."""
    if _State.instance is None:
        sys.stdout.flush()
        os._exit(1)
    _exit()
    error = ActorDiedError(f"The actor {_State.class_name} died because it exited with exit_actor().")
    _reply_error(call, name, error, kind)


def _call(function, args, kwargs, retry):
    """Call the function, again while it raises exceptions that are to be retried."""
    if not retry or not retry[1]:
        return function(*args, **kwargs)
    left, exceptions = retry
    while True:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if left == 0 or left < -1 or (exceptions is not True and not isinstance(error, tuple(exceptions))):
                raise
            left -= 1 if left > 0 else 0


def _run(call, name, parts):
    """Run a method on this thread and reply."""
    kind = parts[0]
    token = current_method.set((name, next(_calls_counter), call))
    if _State.instance is None:
        _output.set_name(name)
    try:
        args, kwargs, more = _read_arguments(parts)
        name = (more or {}).get("name", name)  # The name in the call has only 63 characters.
        value = _call(_find(name, more), args, kwargs, (more or {}).get("retry"))
        if inspect.iscoroutine(value):
            value = asyncio.run(value)
    except SystemExit:
        _reply_exit(call, name, kind)
        return
    except BaseException as error:
        _reply_error(call, name, error, kind)
        return
    finally:
        current_method.reset(token)
    if kind == _serialization.STREAM:
        _send_items(call, name, value, more)
    else:
        _reply(call, name, value, kind)


async def _send_items_async(call, name, items, more):
    """Send the items of an asynchronous generator. Sending may wait, so another thread does it."""
    loop = asyncio.get_running_loop()
    try:
        _set_items_ahead(call, more)
        async for item in items:
            await loop.run_in_executor(None, call.send_item, _serialization.VALUE, *_serialization.dump(item), None)
    except TaskCancelledError:
        await items.aclose()
    except SystemExit:
        await loop.run_in_executor(None, _reply_exit, call, name, _serialization.STREAM)
        return
    except Exception as error:
        await loop.run_in_executor(None, _reply_error, call, name, error, _serialization.STREAM)
        return
    call.reply(_serialization.VALUE, _serialization.NOTHING, None, None, None)


async def _run_async(call, name, parts, group):
    """Run a method in the event loop and reply."""
    kind = parts[0]
    async with _State.semaphores[group]:
        current_method.set((name, next(_calls_counter), call))
        try:
            args, kwargs, more = await asyncio.get_running_loop().run_in_executor(None, _read_arguments, parts) \
                if parts[4] or parts[3] else _read_arguments(parts)
            name = (more or {}).get("name", name)
            value = _find(name, more)(*args, **kwargs)
            if inspect.isawaitable(value):
                value = await _await_or_cancel(call, value)
        except (asyncio.CancelledError, TaskCancelledError):
            _reply_error(call, name, TaskCancelledError(), kind)
            return
        except (SystemExit, _Exit):
            _reply_exit(call, name, kind)
            return
        except BaseException as error:
            _reply_error(call, name, error, kind)
            return
        if kind != _serialization.STREAM:
            _reply(call, name, value, kind)
        elif hasattr(value, "__aiter__"):
            await _send_items_async(call, name, value, more)
        else:
            await asyncio.get_running_loop().run_in_executor(None, _send_items, call, name, value, more)


class _Exit(Exception):
    """Stands for SystemExit in a task, because a task that raises SystemExit ends its event loop."""


async def _replace_exit(awaitable):
    """Await, and raise _Exit instead of SystemExit."""
    try:
        return await awaitable
    except SystemExit:
        raise _Exit from None


async def _await_or_cancel(call, awaitable):
    """Await, and cancel it when the caller cancels the call."""
    task = asyncio.ensure_future(_replace_exit(awaitable))
    call.on_cancel(task.cancel, _State.notices)
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        raise


def _begin_interruptions():
    """Let a thread raise KeyboardInterrupt in the function whose caller cancels it, as Ray does."""
    def run():
        while True:
            _State.notices.take(-1)()
    _State.notices = _tandem.Notices()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=run, name="tandem-cancel", daemon=True).start()


def _interrupt(token):
    """Interrupt the function whose run has this token, if it still runs."""
    with _State.lock:
        if _State.running is token:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def _run_function(call, name, parts):
    """Run a function, which may be interrupted."""
    if _State.lends_cpus:
        _tandem.take_cpus_back()
        _State.lends_cpus = False
    token = object()
    with _State.lock:
        _State.running = token
    call.on_cancel(functools.partial(_interrupt, token), _State.notices)
    try:
        _run(call, name, parts)
    except KeyboardInterrupt:
        pass  # The function had just ended.
    finally:
        with _State.lock:
            _State.running = None


def dispatch(call, name):
    """Serve one call."""
    parts = call.arguments()
    if name == "__tandem_describe__":
        call.reply(_serialization.VALUE, *_serialization.dump((_State.class_name, _State.methods)), None)
        return
    if _State.instance is None and name == remote_function.IS_NEEDED:
        is_needed = _tandem.shared_refs_count() > 0 or remote_function.has_workers()
        if not _State.lends_cpus:
            _tandem.lend_cpus()
            _State.lends_cpus = True
        call.reply(_serialization.VALUE, *_serialization.dump(is_needed), None)
        return
    if _State.instance is None:
        _run_function(call, name, parts)
        return
    if not _State.is_asynchronous and not _State.executors:
        _run(call, name, parts)
        return
    group = _group_of(name, parts)
    call.keep()
    if group not in (_State.semaphores if _State.is_asynchronous else _State.executors):
        _reply_error(call, name, ValueError(f"no concurrency group {group!r} in class {_State.class_name}"), parts[0])
    elif _State.is_asynchronous:
        asyncio.run_coroutine_threadsafe(_run_async(call, name, parts, group), _State.loop)
    else:
        _State.executors[group].submit(_run, call, name, parts)


def _group_of(name, parts):
    """Return the concurrency group in which a call runs."""
    group = _State.groups_of_methods.get(name, _DEFAULT_GROUP)
    if b"group" in parts[1][-4096:]:  # A cheap test: most calls name no group.
        more = _serialization.load(*parts[1:4])[2]
        group = (more or {}).get("group") or group
    return group


# ---- the beginning and the end ---------------------------------------------------------------


def _apply_settings(settings):
    """Set the environment and the module path of the creator."""
    devices = _tandem.getenv("CUDA_VISIBLE_DEVICES")
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    for name, value in settings["environment"].items():
        os.environ[name] = os.path.expandvars(value)
    if os.path.realpath(settings["prefix"]) == os.path.realpath(sys.prefix):  # Else it has modules of its own.
        sys.path[:] = settings["path"] + [entry for entry in sys.path if entry not in settings["path"]]
    _runtime.job_runtime_env = settings["runtime_env"]
    _runtime.own_group = settings["group"]
    _runtime.own_resources = settings["resources"]
    _runtime.own_group_captures = settings["captures"]


def _begin_asynchronous(limits):
    """Start the event loop of an asynchronous actor."""
    started = threading.Event()

    def run():
        asyncio.set_event_loop(_State.loop)
        for group, limit in limits.items():
            _State.semaphores[group] = asyncio.Semaphore(limit)
        _State.notices = _futures.notices_of(_State.loop)
        _State.loop.call_soon(started.set)
        _State.loop.run_forever()

    def run_or_end_process():
        # Without its event loop the actor would never reply again. The end of the process fails all calls.
        try:
            run()
            print(f"tandem: the event loop of the actor {_State.class_name} was stopped, so that its process ends: "
                  "do not call stop() of the running loop", file=sys.stderr)
        except BaseException as error:
            traceback.print_exception(type(error), error, error.__traceback__)
            print(f"tandem: {type(error).__name__} has ended the event loop of the actor {_State.class_name}, so that "
                  "its process ends: catch this exception in the task that raises it", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    _State.is_asynchronous = True
    _State.loop = asyncio.new_event_loop()
    asyncio.set_event_loop(_State.loop)
    threading.Thread(target=run_or_end_process, name="asyncio", daemon=True).start()
    started.wait()


def _begin_concurrency(cls, more):
    """Prepare threads or an event loop as the class needs them."""
    groups = dict(more["groups"])
    asynchronous = actor_module.is_asynchronous(cls)
    limit = more["max_concurrency"]
    if asynchronous:
        _begin_asynchronous({_DEFAULT_GROUP: limit or _ASYNCHRONOUS_CONCURRENCY, **groups})
    elif groups or (limit or 1) > 1:
        for group, count in {_DEFAULT_GROUP: limit or 1, **groups}.items():
            _State.executors[group] = concurrent.futures.ThreadPoolExecutor(count, f"{group}")
    else:
        _futures.notices_are_prompt = False
    _State.groups_of_methods = {name: options["concurrency_group"] for name, options in more["methods"].items()
                                if options.get("concurrency_group")}


def construct(call):
    """Create the user's object."""
    _tandem.forking_ended()
    _futures.after_fork()
    parts = call.arguments()
    settings, head = pickle.loads(parts[1])
    try:
        _apply_settings(settings)
        _construct((parts[0], head, *parts[2:]))
    except BaseException as error:
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        # The end of a traceback is its most important part, and an error detail cuts ends.
        text = text.encode(errors="replace")[-2500:].decode(errors="ignore")
        raise RuntimeError("The actor died because of an error raised in its creation task, "
                           f"{_State.class_name}.__init__():\n{text}") from None


def _construct(parts):
    """Set this worker up and run the constructor of the user's class."""
    args, kwargs, more = _read_arguments(parts)
    _State.class_name = more["class_name"]
    _State.methods = more["methods"]
    if more["class"] is None:
        _futures.notices_are_prompt = False
        _tandem.lend_cpus_in_waits(True)
        _begin_interruptions()
        return
    cls = pickle.loads(more["class"])
    _begin_concurrency(cls, more)
    if _tandem.describe()["actor_name"]:
        _output.set_name(_State.class_name)  # As in Ray, where the daemon would print the actor's own name.
    _State.instance = cls.__new__(cls)
    _State.instance.__init__(*args, **kwargs)
    if cls.__repr__ is not object.__repr__:
        _output.set_name(repr(_State.instance))


def destruct():
    """Run the class's and the program's own handlers for their end."""
    shutdown = getattr(_State.instance, "__ray_shutdown__", None)
    if shutdown is not None:
        shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
