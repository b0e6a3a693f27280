# SPDX-License-Identifier: Apache-2.0
"""Callbacks and futures for references.

libtandem posts a notice for each awaited result that has arrived. An event loop polls the descriptor of its notices and
sets its futures itself. For other futures and callbacks one daemon thread takes the notices. In an actor whose methods
run on the main thread libtandem posts notices of results between methods only; a method that waits for a future would
wait without end. Futures of such an actor are therefore filled by threads that wait.
"""
import asyncio
import concurrent.futures
import functools
import threading

from tandem import _tandem

_lock = threading.Lock()
_thread = None
_notices = None  # The Notices object of the thread.
_waiters = None
_notices_of_loops = {}  # Of each event loop that has awaited a reference and was not seen closed.

# Whether libtandem tells of arrived results while user code runs; a worker with plain methods sets it to False.
notices_are_prompt = True


def _run(notices):
    """Run callbacks until the process ends."""
    while True:
        callback = notices.take(-1)
        if callback is not None:
            try:
                callback()
            except Exception:  # A callback must not end this thread.
                import traceback
                traceback.print_exc()
        callback = None  # It would keep what it belongs to alive until the next notice.


def on_done(ref, callback):
    """Call callback() on another thread once the result of `ref` is there, well or not."""
    global _thread, _notices
    with _lock:
        if _thread is None or not _thread.is_alive():
            _notices = _tandem.Notices()
            _thread = threading.Thread(target=_run, args=(_notices,), name="tandem-notices", daemon=True)
            _thread.start()
    _tandem.watch(ref, callback, _notices)


def _run_callbacks(notices):
    """Run the callbacks of all notices that were posted."""
    while (callback := notices.take(0)) is not None:
        callback()


def notices_of(loop):
    """Return the Notices object whose callbacks the running event loop `loop` calls."""
    notices = _notices_of_loops.get(loop)
    if notices is None:
        with _lock:
            for closed in [other for other in _notices_of_loops if other.is_closed()]:
                _notices_of_loops.pop(closed).close()
            notices = _notices_of_loops[loop] = _tandem.Notices()
        loop.add_reader(notices.descriptor(), _run_callbacks, notices)
    return notices


def _fill(future, ref):
    """Set the future to the outcome of `ref`, waiting for it."""
    from tandem.ray.object_ref import get_value
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = get_value(ref)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(value)


def future_of(ref):
    """Return a concurrent.futures.Future of the value of `ref`."""
    global _waiters
    future = concurrent.futures.Future()
    if notices_are_prompt:
        on_done(ref, lambda: _fill(future, ref))
        return future
    with _lock:
        if _waiters is None:
            _waiters = concurrent.futures.ThreadPoolExecutor(64, "tandem-waiter")
    _waiters.submit(_fill, future, ref)
    return future


def _fill_in_loop(future, ref):
    """Set the future of the running event loop to the outcome of `ref`, which is there."""
    from tandem.ray.object_ref import get_value
    if future.done():
        return  # It was cancelled.
    try:
        future.set_result(get_value(ref))
    except StopIteration as error:
        future.set_exception(RuntimeError(f"the call raised StopIteration: {error}"))  # Futures refuse that class.
    except BaseException as error:
        future.set_exception(error)


def asyncio_future_of(ref):
    """Return an asyncio.Future of the value of `ref` for the running event loop."""
    if not notices_are_prompt:
        return asyncio.wrap_future(future_of(ref))
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    _tandem.watch(ref, functools.partial(_fill_in_loop, future, ref), notices_of(loop))
    return future


def after_fork():
    """Forget the threads and descriptors of the parent."""
    global _thread, _waiters
    _notices_of_loops.clear()
    _thread = None
    _waiters = None
