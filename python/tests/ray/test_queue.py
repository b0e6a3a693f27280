# SPDX-License-Identifier: Apache-2.0
"""ray.util.queue.Queue."""
import asyncio
import queue as python_queue
import threading
import time

import pytest
import ray
from ray.exceptions import ActorDiedError
from ray.util.queue import Empty, Full, Queue

from suite import eventually, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture(scope="module")
def shared(cluster):
    """A queue without limit that is empty before and after each test."""
    return Queue(actor_options={"num_cpus": 0})


def bounded(size):
    return Queue(maxsize=size, actor_options={"num_cpus": 0})


@shows("Queue.put", "Queue.get")
def test_items_leave_in_the_order_in_which_they_came(shared):
    for item in range(5):
        shared.put(item)
    assert [shared.get() for _ in range(5)] == [0, 1, 2, 3, 4]


@shows("Queue.put", "Queue.get")
@pytest.mark.parametrize("item", [None, 0, "", [1, {"a": (2,)}], b"bytes"], ids=repr)
def test_an_item_arrives_equal(shared, item):
    shared.put(item)
    assert shared.get() == item


@shows("Queue.put")
def test_put_returns_nothing(shared):
    assert shared.put(1) is None
    shared.get()


@shows("Queue.put")
def test_put_waits_until_there_is_room():
    queue = bounded(1)
    queue.put("first")
    threading.Timer(0.3, queue.get).start()
    queue.put("second", timeout=60)
    assert queue.get() == "second"


@refuses("Queue.put")
def test_put_into_a_full_queue_raises_full_after_its_timeout():
    queue = bounded(1)
    queue.put(1)
    begun = time.monotonic()
    with pytest.raises(Full):
        queue.put(2, timeout=0.2)
    assert time.monotonic() - begun >= 0.19


@refuses("Queue.put")
def test_put_without_waiting_raises_full():
    queue = bounded(1)
    queue.put(1)
    with pytest.raises(Full):
        queue.put(2, block=False)


@refuses("Queue.put")
def test_a_negative_timeout_of_put_is_a_value_error(shared):
    with pytest.raises(ValueError):
        shared.put(1, timeout=-1)


@shows("Queue.get")
def test_get_waits_for_an_item(shared):
    threading.Timer(0.3, shared.put, ["late"]).start()
    assert shared.get(timeout=60) == "late"


@refuses("Queue.get")
def test_get_from_an_empty_queue_raises_empty_after_its_timeout(shared):
    begun = time.monotonic()
    with pytest.raises(Empty):
        shared.get(timeout=0.2)
    assert time.monotonic() - begun >= 0.19


@refuses("Queue.get")
def test_get_without_waiting_raises_empty(shared):
    with pytest.raises(Empty):
        shared.get(block=False)


@refuses("Queue.get")
def test_a_negative_timeout_of_get_is_a_value_error(shared):
    with pytest.raises(ValueError):
        shared.get(timeout=-0.5)


@shows("Queue.put_nowait", "Queue.get_nowait")
def test_put_and_get_without_waiting_work(shared):
    shared.put_nowait("now")
    assert shared.get_nowait() == "now"


@refuses("Queue.get_nowait")
def test_get_nowait_from_an_empty_queue_raises_empty(shared):
    with pytest.raises(Empty):
        shared.get_nowait()


@refuses("Queue.put_nowait")
def test_put_nowait_into_a_full_queue_raises_full():
    queue = bounded(2)
    queue.put_nowait(1)
    queue.put_nowait(2)
    with pytest.raises(Full):
        queue.put_nowait(3)
    assert queue.get_nowait() == 1


@shows("Queue.get_nowait")
def test_get_nowait_gives_each_item_once(shared):
    for item in range(3):
        shared.put_nowait(item)
    assert [shared.get_nowait() for _ in range(3)] == [0, 1, 2]
    assert shared.empty()


@shows("Queue.put_nowait")
def test_put_nowait_fills_a_queue_to_its_size():
    queue = bounded(3)
    for item in range(3):
        queue.put_nowait(item)
    assert queue.full()


@shows("Queue.put_nowait_batch", "Queue.get_nowait_batch")
def test_many_items_go_in_and_out_at_once(shared):
    shared.put_nowait_batch([1, 2, 3, 4])
    assert shared.get_nowait_batch(3) == [1, 2, 3]
    assert shared.get_nowait_batch(1) == [4]


@shows("Queue.put_nowait_batch")
def test_a_batch_may_be_any_iterable(shared):
    shared.put_nowait_batch(range(0, 30, 10))
    assert shared.get_nowait_batch(3) == [0, 10, 20]


@shows("Queue.get_nowait_batch")
def test_a_batch_of_nothing_is_an_empty_list(shared):
    assert shared.get_nowait_batch(0) == []


@refuses("Queue.put_nowait_batch")
def test_a_batch_that_does_not_fit_is_refused_whole():
    queue = bounded(3)
    queue.put(0)
    with pytest.raises(Full):
        queue.put_nowait_batch([1, 2, 3])
    assert queue.size() == 1


@refuses("Queue.put_nowait_batch")
def test_a_batch_that_is_not_iterable_is_a_type_error(shared):
    with pytest.raises(TypeError):
        shared.put_nowait_batch(5)


@refuses("Queue.get_nowait_batch")
def test_a_batch_larger_than_the_queue_raises_empty_and_takes_nothing(shared):
    shared.put(1)
    with pytest.raises(Empty):
        shared.get_nowait_batch(2)
    assert shared.get() == 1


@refuses("Queue.get_nowait_batch")
@pytest.mark.parametrize("count, exception", [(-1, ValueError), ("1", TypeError), (1.0, TypeError)])
def test_an_impossible_size_of_a_batch_is_refused(shared, count, exception):
    with pytest.raises(exception):
        shared.get_nowait_batch(count)


@shows("Queue.size")
def test_size_counts_the_items(shared):
    assert shared.size() == shared.qsize() == len(shared) == 0
    shared.put_nowait_batch([1, 2])
    assert shared.size() == shared.qsize() == len(shared) == 2
    shared.get_nowait_batch(2)


@shows("Queue.size")
def test_empty_and_full_tell_the_state():
    queue = bounded(1)
    assert queue.empty() and not queue.full()
    queue.put(1)
    assert queue.full() and not queue.empty()


@shows("Queue.size")
def test_a_queue_without_limit_is_never_full(shared):
    shared.put_nowait_batch(range(100))
    assert not shared.full()
    shared.get_nowait_batch(100)


@shows("Queue.size")
def test_maxsize_is_the_limit_given():
    assert bounded(7).maxsize == 7


@refuses("Queue.size")
def test_the_size_of_a_queue_that_was_shut_down_is_unknown():
    queue = bounded(1)
    queue.shutdown()
    with pytest.raises(AttributeError):
        queue.size()


@shows("Queue as argument")
def test_a_task_puts_and_the_driver_gets(shared):
    @ray.remote(num_cpus=0)
    def produce(queue):
        for item in range(3):
            queue.put(item)

    ray.get(produce.remote(shared))
    assert [shared.get(timeout=60) for _ in range(3)] == [0, 1, 2]


@shows("Queue as argument")
def test_producer_and_consumer_meet_in_a_small_queue():
    queue = bounded(2)

    @ray.remote(num_cpus=0)
    def produce(queue, count):
        for item in range(count):
            queue.put(item)

    @ray.remote(num_cpus=0)
    def consume(queue, count):
        return [queue.get() for _ in range(count)]

    producing = produce.remote(queue, 20)
    assert ray.get(consume.remote(queue, 20), timeout=120) == list(range(20))
    ray.get(producing)


@shows("Queue as argument")
def test_two_consumers_share_the_items(shared):
    @ray.remote(num_cpus=0)
    def consume(queue, count):
        return [queue.get(timeout=60) for _ in range(count)]

    consumers = [consume.remote(shared, 5) for _ in range(2)]
    shared.put_nowait_batch(range(10))
    first, second = ray.get(consumers, timeout=120)
    assert sorted(first + second) == list(range(10))


@refuses("Queue as argument")
def test_a_task_that_finds_the_queue_empty_raises_empty(shared):
    @ray.remote(num_cpus=0, max_retries=0)
    def take(queue):
        return queue.get_nowait()

    with pytest.raises(Empty):
        ray.get(take.remote(shared))


@shows("Queue.put_async", "Queue.get_async")
def test_async_put_and_get_work(shared):
    async def main():
        await shared.put_async("async")
        return await shared.get_async()

    assert asyncio.run(main()) == "async"


@shows("Queue.put_async", "Queue.get_async")
def test_async_get_waits_for_async_put(shared):
    async def main():
        waiting = asyncio.create_task(shared.get_async(timeout=60))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await shared.put_async("late")
        return await waiting

    assert asyncio.run(main()) == "late"


@shows("Queue.put_async", "Queue.get_async")
def test_an_async_actor_uses_a_queue(shared):
    @ray.remote(num_cpus=0)
    class Relay:
        async def relay(self, queue):
            item = await queue.get_async(timeout=60)
            await queue.put_async(item + 1)

    relay = Relay.remote()
    done = relay.relay.remote(shared)
    shared.put(1)
    ray.get(done, timeout=60)
    assert shared.get() == 2


@refuses("Queue.get_async")
def test_async_get_raises_empty(shared):
    with pytest.raises(Empty):
        asyncio.run(shared.get_async(timeout=0.1))
    with pytest.raises(Empty):
        asyncio.run(shared.get_async(block=False))


@refuses("Queue.put_async")
def test_async_put_raises_full():
    queue = bounded(1)
    queue.put(1)
    with pytest.raises(Full):
        asyncio.run(queue.put_async(2, timeout=0.1))
    with pytest.raises(Full):
        asyncio.run(queue.put_async(2, block=False))


@shows("Queue.shutdown")
def test_shutdown_frees_what_the_queue_held():
    queue = Queue(actor_options={"num_cpus": 0, "resources": {"widget": 1}})
    queue.put(1)
    queue.shutdown()
    eventually(lambda: ray.available_resources().get("widget") == 2)


@shows("Queue.shutdown")
def test_forced_shutdown_ends_who_waits():
    queue = bounded(1)

    @ray.remote(num_cpus=0, max_retries=0)
    def wait(queue):
        return queue.get()

    waiting = wait.remote(queue)
    assert ray.wait([waiting], timeout=0.5) == ([], [waiting])
    queue.shutdown(force=True)
    with pytest.raises(ActorDiedError):
        ray.get(waiting, timeout=60)


@shows("Queue.shutdown")
def test_a_queue_may_be_shut_down_twice():
    queue = bounded(1)
    queue.shutdown(force=True)
    queue.shutdown()


@refuses("Queue.shutdown")
def test_a_queue_that_was_shut_down_takes_nothing():
    queue = bounded(1)
    queue.shutdown(force=True)
    with pytest.raises(AttributeError):
        queue.put(1)


@shows("Queue")
def test_a_queue_may_have_the_name_of_an_actor():
    queue = Queue(actor_options={"num_cpus": 0, "name": "the queue"})
    queue.put("known by name")
    assert ray.get(ray.get_actor("the queue").qsize.remote()) == 1


@shows("Queue")
def test_two_queues_do_not_mix():
    first, second = bounded(1), bounded(1)
    first.put("first")
    assert second.empty() and first.get() == "first"


@shows("Queue")
def test_full_and_empty_are_those_of_python():
    assert issubclass(Full, python_queue.Full) and issubclass(Empty, python_queue.Empty)


@refuses("Queue")
def test_impossible_options_of_a_queue_are_a_value_error():
    with pytest.raises(ValueError):
        Queue(actor_options={"cpus": 1})
