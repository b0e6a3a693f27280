# SPDX-License-Identifier: Apache-2.0
"""Computes the rewards of many answers, each within its time.

A function that is late cannot be stopped in Python. It runs in a thread that is then abandoned, and the next answers
get a new thread; a coroutine is canceled.
"""
import array
import asyncio
import inspect
import sys
import threading
import time
import traceback

# Threads that may be abandoned before score() gives up.
_ABANDONED_MAX = 16


class _Thread:
    """A thread that calls a function for one argument after another."""

    def __init__(self, function, arguments, first):
        self._function = function
        self._arguments = arguments
        self._condition = threading.Condition()
        self._results = []
        self._began = time.monotonic()
        self._first = first
        self._is_abandoned = False
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        for index in range(self._first, len(self._arguments)):
            try:
                result = self._function(*self._arguments[index])
            except BaseException as error:
                result = error
            with self._condition:
                if self._is_abandoned:
                    return
                self._results.append(result)
                self._began = time.monotonic()
                self._condition.notify()

    def take(self, index, timeout):
        """Return the result for an argument, or None if it has taken longer than timeout; the thread is left then."""
        with self._condition:
            while len(self._results) <= index - self._first:
                left = self._began + timeout - time.monotonic()
                if left <= 0:
                    self._is_abandoned = True
                    return None
                self._condition.wait(left)
            return (self._results[index - self._first],)


class Scorer:
    """Calls the reward function of a module.

    timeout is the longest time of one call in seconds.
    """

    def __init__(self, function, is_batched, timeout):
        self._function = function
        self._is_batched = is_batched
        self._timeout = timeout
        self._is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None))
        self._abandoned_count = 0

    def score(self, requests):
        """Return for each RewardRequest (reward, bytes of the token rewards or None, text of the failure or None)."""
        if not requests:
            return []
        if self._is_batched:
            results = self._call_all([(requests,)])[0]
            if not isinstance(results, BaseException):
                results = list(results)
                if len(results) != len(requests):
                    results = ValueError(f"{len(results)} rewards for {len(requests)} answers")
            if isinstance(results, BaseException):
                _print_failure(results)
                results = [results] * len(requests)
        else:
            results = self._call_all([(request.prompt, request.answer, request.completion) for request in requests])
            for result in results:
                if isinstance(result, BaseException):
                    _print_failure(result)
                    break
        return [_plain_result(result, request) for result, request in zip(results, requests)]

    def _call_all(self, arguments):
        return asyncio.run(self._call_coroutines(arguments)) if self._is_coroutine else self._call_threads(arguments)

    async def _call_coroutines(self, arguments):
        async def call(args):
            try:
                return await asyncio.wait_for(self._function(*args), self._timeout)
            except asyncio.TimeoutError:
                return self._late()
            except Exception as error:
                return error
        return await asyncio.gather(*(call(args) for args in arguments))

    def _call_threads(self, arguments):
        results = []
        thread = _Thread(self._function, arguments, 0)
        for index in range(len(arguments)):
            taken = thread.take(index, self._timeout)
            results.append(self._late() if taken is None else taken[0])
            if taken is None:
                self._abandoned_count += 1
                if self._abandoned_count > _ABANDONED_MAX:
                    raise TimeoutError(f"{self._abandoned_count} rewards have taken longer than {self._timeout:g} s, "
                                       "and their threads may still run; use an async function, which can be stopped")
                if index + 1 < len(arguments):
                    thread = _Thread(self._function, arguments, index + 1)
        return results

    def _late(self):
        return TimeoutError(f"no reward within {self._timeout * 1000:.0f} ms (rollout.reward_timeout_ms)")


def _print_failure(error):
    traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)


def _plain_result(result, request):
    """Return one result as plain values."""
    if isinstance(result, BaseException):
        return (0.0, None, _failure_text(result))
    try:
        if isinstance(result, (tuple, list)):
            reward, tokens = result
            tokens = array.array("f", (float(number) for number in tokens))
            if len(tokens) != len(request.completion.tokens):
                raise ValueError(f"{len(tokens)} token rewards for {len(request.completion.tokens)} tokens")
            return (float(reward), tokens.tobytes(), None)
        return (float(result), None, None)
    except (TypeError, ValueError) as error:
        return (0.0, None, _failure_text(error))


def _failure_text(error):
    """Return the text of an exception, at most 250 bytes."""
    text = f"{type(error).__name__}: {error}".replace("\0", " ")
    return text.encode(errors="replace")[:250].decode(errors="ignore")
