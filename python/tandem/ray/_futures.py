# SPDX-License-Identifier: Apache-2.0
"""Callbacks and futures for references.

One daemon thread takes the results that have arrived from libtandem and runs their callbacks. In an actor whose methods
run on the main thread libtandem gives such notices between methods only; a method that waits for a future would wait
without end. Futures of such an actor are therefore filled by threads that wait.
"""
import concurrent.futures
import threading

from tandem import _tandem

_lock = threading.Lock()
_thread = None
_waiters = None

# Whether libtandem tells of arrived results while user code runs; a worker with plain methods sets it to False.
notices_are_prompt = True


def _run():
    """Run callbacks until the runtime has stopped."""
    while True:
        callback = _tandem.next_done(200)
        if callback is not None:
            try:
                callback()
            except Exception:  # A callback must not end this thread.
                import traceback
                traceback.print_exc()


def on_done(ref, callback):
    """Call callback() on another thread once the result of `ref` is there, well or not."""
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_run, name="tandem-notices", daemon=True)
            _thread.start()
    _tandem.watch(ref, callback)


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


def after_fork():
    """Forget the threads of the parent."""
    global _thread, _waiters
    _thread = None
    _waiters = None
