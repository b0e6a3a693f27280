# SPDX-License-Identifier: Apache-2.0
"""Streaming generators of functions and of actors."""
import asyncio
import os
import time

import numpy as np
import pytest
import ray
from ray.exceptions import RayActorError

from suite import CustomError, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
def count(number):
    for item in range(number):
        yield item


@ray.remote(num_cpus=0)
class Streams:
    def __init__(self):
        self.made = 0

    def count(self, number):
        for item in range(number):
            yield item

    def fail_after(self, number, exception):
        for item in range(number):
            yield item
        raise exception

    def exit_after(self, number):
        for item in range(number):
            yield item
            time.sleep(0.1)
        os._exit(1)

    def wait_between(self, refs):
        yield "before"
        yield ray.get(refs[0])

    def state(self):
        self.made += 1
        yield self.made
        self.made += 1
        yield self.made

    def plain(self):
        return "plain"

    def arrays(self, number):
        for item in range(number):
            yield np.full(50_000, item)


@ray.remote(num_cpus=0)
class AsyncStreams:
    async def count(self, number):
        for item in range(number):
            await asyncio.sleep(0)
            yield item

    async def fail_after(self, number):
        for item in range(number):
            yield item
        raise CustomError(5)

    async def echo(self, value):
        return value


@pytest.fixture(scope="module")
def streams(cluster):
    return Streams.remote()


@pytest.fixture(scope="module")
def async_streams(cluster):
    return AsyncStreams.remote()


@shows("generator function")
def test_a_generator_function_returns_a_generator_of_references():
    generator = count.remote(3)
    assert isinstance(generator, ray.ObjectRefGenerator)
    refs = list(generator)
    assert all(isinstance(ref, ray.ObjectRef) for ref in refs)
    assert ray.get(refs) == [0, 1, 2]


@shows("generator function")
def test_num_returns_streaming_gives_the_same():
    generator = count.options(num_returns="streaming").remote(3)
    assert isinstance(generator, ray.ObjectRefGenerator)
    assert [ray.get(ref) for ref in generator] == [0, 1, 2]


@shows("generator function")
def test_an_empty_generator_ends_at_once():
    assert list(count.remote(0)) == []


@shows("generator function")
def test_a_generator_ends_with_stop_iteration():
    generator = count.remote(1)
    assert ray.get(next(generator)) == 0
    with pytest.raises(StopIteration):
        next(generator)


@shows("generator function")
def test_an_ended_generator_stays_ended():
    generator = count.remote(0)
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(generator)


@shows("generator function")
def test_many_items_arrive_in_order():
    assert [ray.get(ref) for ref in count.remote(200)] == list(range(200))


@shows("generator function")
def test_items_can_be_got_in_any_order():
    first, second, third = count.remote(3)
    assert ray.get([third, first, second]) == [2, 0, 1]


@shows("generator function")
def test_two_generators_do_not_mix():
    first, second = count.remote(3), count.remote(3)
    pairs = [(ray.get(left), ray.get(right)) for left, right in zip(first, second)]
    assert pairs == [(0, 0), (1, 1), (2, 2)]


@shows("generator function")
def test_a_generator_is_its_own_iterator():
    generator = count.remote(2)
    assert iter(generator) is generator
    assert ray.get(next(generator)) == 0
    assert [ray.get(ref) for ref in generator] == [1]


@shows("generator function")
def test_an_exception_comes_after_the_items():
    @ray.remote(num_cpus=0)
    def broken():
        yield 1
        raise CustomError(7)

    generator = broken.remote()
    assert ray.get(next(generator)) == 1
    with pytest.raises(CustomError):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


@shows("generator function")
def test_items_are_arguments_of_other_tasks():
    assert ray.get([identity.remote(ref) for ref in count.remote(3)]) == [0, 1, 2]


@shows("generator function")
def test_get_of_a_generator_is_the_generator():
    generator = count.remote(1)
    assert ray.get(generator) is generator


@refuses("generator function")
def test_a_generator_has_no_length():
    with pytest.raises(TypeError):
        len(count.remote(1))


@refuses("generator function")
def test_wrong_arguments_of_a_generator_are_a_type_error_at_once():
    with pytest.raises(TypeError):
        count.remote()


@refuses("generator function")
def test_streaming_from_a_function_that_does_not_yield_is_a_value_error():
    with pytest.raises(ValueError):
        @ray.remote(num_cpus=0, num_returns="streaming")
        def no_generator():
            return 5

        no_generator.remote()


@refuses("generator function")
def test_an_unknown_word_for_num_returns_is_refused():
    with pytest.raises(TypeError):
        count.options(num_returns="stream").remote(1)


@refuses("generator function")
def test_a_generator_cannot_be_pickled():
    with pytest.raises(TypeError):
        identity.remote(count.remote(1))


@shows("generator method")
def test_a_generator_method_streams(streams):
    generator = streams.count.remote(3)
    assert isinstance(generator, ray.ObjectRefGenerator)
    assert [ray.get(ref) for ref in generator] == [0, 1, 2]


@shows("generator method")
def test_a_generator_method_accepts_num_returns_streaming(streams):
    generator = streams.count.options(num_returns="streaming").remote(2)
    assert [ray.get(ref) for ref in generator] == [0, 1]


@shows("generator method")
def test_a_declared_generator_method_streams():
    @ray.remote(num_cpus=0)
    class Declared:
        @ray.method(num_returns="streaming")
        def pair(self):
            yield "a"
            yield "b"

    assert [ray.get(ref) for ref in Declared.remote().pair.remote()] == ["a", "b"]


@shows("generator method")
def test_items_come_before_the_method_has_ended(streams, gate):
    generator = streams.wait_between.remote([gate.wait.remote("after")])
    assert ray.get(next(generator), timeout=60) == "before"
    gate.open.remote()
    assert ray.get(next(generator), timeout=60) == "after"


@shows("generator method")
def test_a_generator_method_changes_the_state_of_its_actor():
    actor = Streams.remote()
    assert [ray.get(ref) for ref in actor.state.remote()] == [1, 2]
    assert [ray.get(ref) for ref in actor.state.remote()] == [3, 4]


@shows("generator method")
def test_other_methods_run_after_a_generator(streams):
    generator = streams.count.remote(2)
    assert ray.get(streams.plain.remote()) == "plain"
    assert [ray.get(ref) for ref in generator] == [0, 1]


@shows("generator method")
def test_arrays_are_streamed(streams):
    arrays = [ray.get(ref) for ref in streams.arrays.remote(4)]
    assert [int(array[0]) for array in arrays] == [0, 1, 2, 3]
    assert all(len(array) == 50_000 for array in arrays)


@shows("generator method")
def test_an_exception_of_a_generator_method_comes_after_the_items(streams):
    generator = streams.fail_after.remote(2, KeyError("end"))
    assert [ray.get(next(generator)), ray.get(next(generator))] == [0, 1]
    with pytest.raises(KeyError):
        ray.get(next(generator))
    with pytest.raises(StopIteration):
        next(generator)


@shows("generator method")
def test_a_dropped_generator_leaves_its_actor_usable(streams):
    generator = streams.count.remote(5)
    next(generator)
    del generator
    assert ray.get(streams.plain.remote(), timeout=60) == "plain"


@shows("generator method")
def test_a_generator_whose_actor_dies_gives_its_items_first():
    generator = Streams.remote().exit_after.remote(2)
    assert ray.get(next(generator), timeout=60) == 0
    with pytest.raises(RayActorError):
        for ref in generator:
            ray.get(ref, timeout=60)


@shows("generator method")
def test_a_generator_can_be_waited_for(streams, gate):
    generator = streams.wait_between.remote([gate.wait.remote()])
    ready, rest = ray.wait([generator], timeout=60)
    assert ready == [generator] and rest == []
    assert ray.get(next(generator)) == "before"
    ready, rest = ray.wait([generator], timeout=0.2)
    assert ready == [] and rest == [generator]
    gate.open.remote()
    ready, rest = ray.wait([generator], timeout=60)
    assert ready == [generator]
    assert ray.get(next(generator)) == "open"


@refuses("generator method")
def test_an_item_that_is_late_makes_get_time_out(streams, gate):
    generator = streams.wait_between.remote([gate.wait.remote()])
    assert ray.get(next(generator)) == "before"
    ready, _ = ray.wait([generator], timeout=0.1)
    assert ready == []
    ray.get(gate.open.remote())
    assert ray.get(next(generator)) == "open"
    with pytest.raises(StopIteration):
        next(generator)


@refuses("generator method")
def test_streaming_from_a_method_that_does_not_yield_is_a_value_error(streams):
    with pytest.raises(ValueError):
        streams.plain.options(num_returns="streaming").remote()


@shows("async generator method")
def test_an_async_generator_streams(async_streams):
    assert [ray.get(ref) for ref in async_streams.count.remote(3)] == [0, 1, 2]


@shows("async generator method")
def test_a_generator_is_read_by_async_for(async_streams):
    async def main():
        return [await ref async for ref in async_streams.count.remote(3)]

    assert asyncio.run(main()) == [0, 1, 2]


@shows("async generator method")
def test_a_sync_generator_is_read_by_async_for():
    async def main():
        return [await ref async for ref in count.remote(3)]

    assert asyncio.run(main()) == [0, 1, 2]


@shows("async generator method")
def test_two_async_generators_of_one_actor_run_at_once(async_streams):
    async def read(number):
        return [await ref async for ref in async_streams.count.remote(number)]

    async def main():
        return await asyncio.gather(read(3), read(2))

    assert asyncio.run(main()) == [[0, 1, 2], [0, 1]]


@shows("async generator method")
def test_an_async_actor_reads_the_generator_of_another(async_streams):
    @ray.remote(num_cpus=0)
    class Reader:
        async def read(self, source):
            return [await ref async for ref in source.count.remote(3)]

    assert ray.get(Reader.remote().read.remote(async_streams)) == [0, 1, 2]


@refuses("async generator method")
def test_an_exception_of_an_async_generator_comes_after_the_items(async_streams):
    generator = async_streams.fail_after.remote(1)
    assert ray.get(next(generator)) == 0
    with pytest.raises(CustomError):
        ray.get(next(generator))


@refuses("async generator method")
def test_async_for_ends_with_the_failure(async_streams):
    async def main():
        return [await ref async for ref in async_streams.fail_after.remote(2)]

    with pytest.raises(CustomError):
        asyncio.run(main())


@shows("generator function")
def test_a_generator_inside_a_task_is_read_there():
    @ray.remote(num_cpus=0)
    def total(number):
        return sum(ray.get(ref) for ref in count.remote(number))

    assert ray.get(total.remote(4)) == 6


@shows("generator function")
def test_completed_is_ready_when_the_generator_has_ended():
    generator = count.remote(2)
    ray.get(generator.completed(), timeout=60)
    assert [ray.get(ref) for ref in generator] == [0, 1]


@shows("generator function")
def test_completed_does_not_wait_for_a_reader():
    generator = count.remote(100)
    assert ray.get(generator.completed(), timeout=60) is None
    assert [ray.get(ref) for ref in generator] == list(range(100))


@shows("generator function")
def test_completed_of_a_generator_that_raises_is_none(streams):
    generator = streams.fail_after.remote(1, KeyError("end"))
    assert ray.get(generator.completed(), timeout=60) is None
    assert ray.get(next(generator)) == 0
    with pytest.raises(KeyError):
        ray.get(next(generator))


@shows("generator function")
def test_completed_is_the_same_each_time():
    generator = count.remote(1)
    assert generator.completed() == generator.completed()
    assert isinstance(generator.completed(), ray.ObjectRef)


@refuses("generator method")
def test_completed_fails_when_the_actor_dies():
    generator = Streams.remote().exit_after.remote(1)
    with pytest.raises(RayActorError):
        ray.get(generator.completed(), timeout=60)


@shows("generator function")
def test_functions_run_beside_a_generator_that_waits(gate):
    @ray.remote(num_cpus=0)
    def wait(refs):
        yield ray.get(refs[0])

    generator = wait.remote([gate.wait.remote()])
    assert ray.get([identity.remote(number) for number in range(3)], timeout=60) == [0, 1, 2]
    gate.open.remote()
    assert ray.get(next(generator)) == "open"


@shows("generator function")
def test_a_generator_may_wait_for_its_reader(tmp_path):
    path = tmp_path / "items"

    @ray.remote(num_cpus=0, _generator_backpressure_num_objects=2)
    def write(path, number):
        for item in range(number):
            with open(path, "a", encoding="ascii") as file:
                file.write(".")
            yield item

    generator = write.remote(str(path), 50)
    assert ray.get(next(generator)) == 0
    time.sleep(1)
    assert len(path.read_text(encoding="ascii")) < 8
    assert [ray.get(ref) for ref in generator] == list(range(1, 50))


@shows("generator method")
def test_a_generator_method_may_wait_for_its_reader(tmp_path):
    path = tmp_path / "items"

    @ray.remote(num_cpus=0)
    class Writer:
        @ray.method(_generator_backpressure_num_objects=1)
        def write(self, path, number):
            for item in range(number):
                with open(path, "a", encoding="ascii") as file:
                    file.write(".")
                yield item

    generator = Writer.remote().write.remote(str(path), 50)
    assert ray.get(next(generator)) == 0
    time.sleep(1)
    assert len(path.read_text(encoding="ascii")) < 8
    assert [ray.get(ref) for ref in generator] == list(range(1, 50))


@refuses("generator function")
def test_a_generator_needs_room_for_an_item():
    with pytest.raises(ValueError):
        count.options(_generator_backpressure_num_objects=0)
