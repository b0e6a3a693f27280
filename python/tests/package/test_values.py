# SPDX-License-Identifier: Apache-2.0
"""Values and references: get, put, wait, futures, arrays in shared memory."""
import asyncio
import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

from tandem import ray
from tandem.ray import exceptions


@ray.remote
class Keeper:
    def keep(self, value):
        self.value = value

    def total(self):
        return float(self.value.sum())

    def same(self, value):
        return value

    def is_writeable(self, array):
        return array.flags.writeable

    def get_inner(self, refs):
        return ray.get(refs)

    def put(self, value):
        return [ray.put(value)]

    def sleep(self, seconds):
        time.sleep(seconds)
        return "slept"


def _keeper_with_await():
    """Return a plain actor whose method runs an event loop of its own."""
    @ray.remote
    class Awaiter:
        def value(self, refs):
            async def wait():
                return await refs[0]
            return asyncio.run(wait())
    return Awaiter.remote()


@pytest.fixture(scope="module")
def keeper():
    return Keeper.remote()


@pytest.mark.parametrize("value", [None, 1, "text", b"bytes", [1, {"a": (2, 3)}], {4, 5}, 1 << 100, float("inf")])
def test_values_come_back(keeper, value):
    assert ray.get(keeper.same.remote(value)) == value
    assert ray.get(ray.put(value)) == value


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (1000, 1000)])
@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16"])
def test_arrays_come_back_read_only(keeper, shape, dtype):
    array = np.arange(int(np.prod(shape))).astype(dtype).reshape(shape)
    for back in (ray.get(ray.put(array)), ray.get(keeper.same.remote(array))):
        assert back.dtype == array.dtype and np.array_equal(back, array)
        assert not back.flags.writeable and back.flags.aligned


def test_array_in_the_arguments_outlives_its_method(keeper):
    keeper.keep.remote(np.ones(1 << 20))
    ray.get([keeper.same.remote(index) for index in range(100)])
    assert ray.get(keeper.total.remote()) == float(1 << 20)


def test_array_outlives_its_reference():
    array = ray.get(ray.put(np.arange(1 << 20)))
    gc.collect()
    for _ in range(3):
        ray.put(np.zeros(1 << 20))
    assert array[-1] == (1 << 20) - 1


def test_references_among_the_arguments_become_values(keeper):
    assert ray.get(keeper.same.remote(keeper.same.remote(5))) == 5
    assert ray.get(keeper.same.remote(value=ray.put(np.arange(1 << 18)))).sum() == sum(range(1 << 18))


def test_nested_references_stay_references(keeper):
    refs = [ray.put(index) for index in range(100)]
    assert ray.get(keeper.get_inner.remote(refs)) == list(range(100))
    assert isinstance(ray.get(keeper.same.remote([refs[0]]))[0], ray.ObjectRef)


def test_reference_made_by_an_actor(keeper):
    (ref,) = ray.get(keeper.put.remote(np.ones(1 << 18)))
    assert ray.get(ref).sum() == 1 << 18


def test_reference_has_the_same_id_everywhere(keeper):
    ref = ray.put(1)
    (back,) = ray.get(keeper.same.remote([ref]))
    assert back == ref and hash(back) == hash(ref) and back.hex() == ref.hex() and len(ref.binary()) == 28


def test_failed_argument_fails_the_call(keeper):
    @ray.remote
    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ray.get(keeper.same.remote(fail.remote()))


def test_get_of_other_things():
    with pytest.raises(ValueError):
        ray.get(1)
    with pytest.raises(TypeError):
        ray.get([1])
    assert ray.get([]) == []
    with pytest.raises(TypeError):
        ray.put(ray.put(1))


def test_timeout():
    sleeper = Keeper.remote()
    ref = sleeper.sleep.remote(0.5)
    with pytest.raises(exceptions.GetTimeoutError, match="within 50 ms: method sleep of actor "):
        ray.get(ref, timeout=0.05)
    with pytest.raises(exceptions.GetTimeoutError, match="no result within 210 ms: "):
        ray.get(ref, timeout=0.21)
    with pytest.raises(TimeoutError):
        ray.get([ref], timeout=0)
    assert ray.get(ref) == "slept"


def test_wait():
    sleeper = Keeper.remote()
    slow, fast = sleeper.sleep.remote(1), ray.put(1)
    assert ray.wait([slow, fast], timeout=0.05) == ([fast], [slow])
    assert ray.wait([slow, fast], num_returns=2) == ([slow, fast], [])
    for wrong in (dict(num_returns=3), dict(num_returns=0), dict(timeout=-1)):
        with pytest.raises(ValueError):
            ray.wait([slow, fast], **wrong)
    with pytest.raises(TypeError):
        ray.wait(fast)
    with pytest.raises(ValueError):
        ray.wait([fast, fast])


def test_futures(keeper):
    assert ray.put(3).future().result(30) == 3
    assert keeper.same.remote("later").future().result(30) == "later"

    async def both():
        return await asyncio.gather(keeper.same.remote(1), keeper.same.remote(2))
    assert asyncio.run(both()) == [1, 2]


def test_plain_method_may_await_a_reference():
    sleeper = Keeper.remote()
    assert ray.get(_keeper_with_await().value.remote([sleeper.sleep.remote(0.2)]), timeout=60) == "slept"


def test_interrupt_ends_a_wait():
    sleeper = Keeper.remote()
    ref = sleeper.sleep.remote(3)
    for wait in (lambda: ray.get(ref), lambda: ray.wait([ref])):
        threading.Timer(0.3, signal.raise_signal, (signal.SIGINT,)).start()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert time.monotonic() - begun < 2


def test_cancelled_call_that_waits_never_runs():
    sleeper = Keeper.remote()
    sleeper.sleep.remote(1)
    ref = sleeper.sleep.remote(1000)
    ray.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(ref)
    with pytest.raises(ValueError):
        ray.cancel(ref, force=True)
    with pytest.raises(TypeError):
        ray.cancel(sleeper)


@pytest.mark.parametrize("array", [
    np.arange(12).reshape(3, 4), np.array(5.0), np.zeros((0, 3)), np.arange(6, dtype=">i4"),
    np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(10)[::2], np.array([True, False]),
    np.array([1 + 2j]), np.array(["text"]), np.array([{}], dtype=object),
    np.array([(1, 2.0)], dtype=[("a", "i4"), ("b", "f8")]), np.array(["2026-01-01"], dtype="M8[D]"),
    np.arange(4, dtype=np.float16), np.arange(3).view(np.matrix),
], ids=lambda array: f"{array.dtype.str}{array.shape}")
def test_an_array_comes_back_as_it_went(array):
    value = ray.get(ray.put(array))
    assert type(value) is type(array) and value.dtype == array.dtype and value.shape == array.shape
    assert (value == array).all()


def test_an_array_may_be_the_result_and_the_argument_of_a_method():
    @ray.remote(num_cpus=0)
    class Doubler:
        def double(self, array):
            return array * 2

    array = np.arange(300000).reshape(3, 100000)
    doubled = Doubler.remote().double.remote(ray.put(array))
    assert (ray.get(doubled) == array * 2).all()


@ray.remote(num_cpus=0)
class Later:
    async def value(self, seconds, value):
        await asyncio.sleep(seconds)
        return value


def test_each_event_loop_awaits_references():
    later = Later.remote()

    async def gather(count):
        return await asyncio.gather(*[later.value.remote(0, number) for number in range(count)])

    for count in (1, 50, 300):
        assert asyncio.run(gather(count)) == list(range(count))


def test_event_loops_that_ended_while_they_waited_leave_no_descriptors():
    later = Later.remote()

    async def give_up():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(later.value.remote(0.2, 1), 0.01)

    asyncio.run(give_up())
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        asyncio.run(give_up())
    time.sleep(0.4)
    asyncio.run(give_up())
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_two_threads_with_event_loops_await_at_once():
    later = Later.remote()
    found = []

    async def add(number):
        found.append(await later.value.remote(0.1, number))

    threads = [threading.Thread(target=asyncio.run, args=(add(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]


def test_an_event_loop_is_free_while_it_awaits():
    later = Later.remote()

    async def count():
        waiting = asyncio.ensure_future(later.value.remote(0.3, "done").as_future())
        rounds = 0
        while not waiting.done():
            await asyncio.sleep(0.01)
            rounds += 1
        return rounds, await waiting

    rounds, value = asyncio.run(count())
    assert value == "done" and rounds >= 5
