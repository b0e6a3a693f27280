# SPDX-License-Identifier: Apache-2.0
"""References: identity, hashes, text, futures, await, and references inside arguments and values."""
import asyncio
import concurrent.futures
import gc
import pickle
import threading
import time

import pytest
import ray
from ray.exceptions import GetTimeoutError, ObjectLostError

from suite import Counter, Echo, fail_with, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@shows("ObjectRef")
def test_a_call_returns_a_reference(echo):
    assert isinstance(echo.echo.remote(1), ray.ObjectRef)


@shows("ObjectRef")
def test_a_task_returns_a_reference():
    assert isinstance(identity.remote(1), ray.ObjectRef)


@shows("ObjectRef")
def test_each_call_returns_another_reference(echo):
    refs = {echo.echo.remote(number) for number in range(20)}
    assert len(refs) == 20


@shows("ObjectRef")
def test_a_reference_is_equal_to_itself_only():
    first, second = ray.put(1), ray.put(1)
    assert first == first and first != second


@shows("ObjectRef")
def test_a_reference_is_not_equal_to_its_value():
    assert ray.put(1) != 1


@shows("ObjectRef")
def test_a_reference_is_a_key_of_a_dictionary():
    first, second = ray.put("a"), ray.put("b")
    names = {first: "first", second: "second"}
    assert names[first] == "first" and names[second] == "second"


@shows("ObjectRef.hex")
def test_hex_is_a_text_of_hexadecimal_digits():
    text = ray.put(1).hex()
    assert isinstance(text, str) and len(text) > 16
    int(text, 16)


@shows("ObjectRef.hex")
def test_hex_differs_between_references():
    assert len({ray.put(number).hex() for number in range(10)}) == 10


@shows("ObjectRef.hex")
def test_hex_is_the_same_each_time_and_in_a_task():
    ref = ray.put(1)

    @ray.remote(num_cpus=0)
    def hex_of(refs):
        return refs[0].hex()

    assert ref.hex() == ref.hex() == ray.get(hex_of.remote([ref]))


@refuses("ObjectRef.hex")
def test_hex_takes_no_argument():
    with pytest.raises(TypeError):
        ray.put(1).hex("ab")


@shows("ObjectRef.hex")
def test_binary_are_the_bytes_of_hex():
    ref = ray.put(1)
    assert ref.binary().hex() == ref.hex()


@shows("ObjectRef")
def test_the_text_of_a_reference_contains_its_hex():
    ref = ray.put(1)
    assert ref.hex() in repr(ref)
    assert repr(ref).startswith("ObjectRef(")


@shows("ObjectRef")
def test_a_hash_is_the_same_where_the_reference_arrives():
    ref = ray.put(1)

    @ray.remote(num_cpus=0)
    def is_key(table, key):
        return key[0] in table

    assert ray.get(is_key.remote({ref: 1}, [ref]))


@refuses("ObjectRef")
def test_a_reference_cannot_be_iterated():
    with pytest.raises(TypeError):
        iter(ray.put([1, 2]))


@shows("ObjectRef")
def test_a_reference_has_no_truth_of_its_value():
    """A reference is true whatever its value is, so testing it is a mistake that no exception shows."""
    assert bool(ray.put(0))


@refuses("ObjectRef")
def test_a_reference_has_no_attributes_of_its_value():
    with pytest.raises(AttributeError):
        ray.put("text").upper()


@refuses("ObjectRef")
def test_references_have_no_order():
    with pytest.raises(TypeError):
        ray.put(1) < ray.put(2)


@refuses("ObjectRef")
def test_a_reference_cannot_be_added():
    with pytest.raises(TypeError):
        ray.put(1) + 1


@shows("ObjectRef.future")
def test_a_future_gives_the_value():
    future = identity.remote("value").future()
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(60) == "value"


@shows("ObjectRef.future")
def test_a_future_raises_the_failure():
    with pytest.raises(ValueError):
        fail_with.remote(ValueError("no")).future().result(60)


@shows("ObjectRef.future")
def test_a_future_calls_back(gate):
    arrived = threading.Event()
    future = gate.wait.remote().future()
    future.add_done_callback(lambda _: arrived.set())
    assert not arrived.is_set()
    gate.open.remote()
    assert arrived.wait(60)


@refuses("ObjectRef.future")
def test_a_future_that_is_late_raises_timeout_error(gate):
    with pytest.raises(concurrent.futures.TimeoutError):
        gate.wait.remote().future().result(0.05)


@shows("ObjectRef.future")
def test_a_future_is_not_done_before_the_value_is_there(gate):
    future = gate.wait.remote().future()
    assert not future.done()
    ray.get(gate.open.remote())
    assert future.result(60) == "open" and future.done()


@shows("await ref")
def test_the_driver_can_await_a_reference():
    async def main():
        return await identity.remote("awaited")

    assert asyncio.run(main()) == "awaited"


@shows("await ref")
def test_the_driver_can_await_a_reference_of_put():
    async def main():
        return await ray.put([1, 2])

    assert asyncio.run(main()) == [1, 2]


@shows("await ref")
def test_gather_gives_values_in_order(gate):
    async def main():
        late = gate.wait.remote("late")
        await gate.open.remote()
        return await asyncio.gather(late, identity.remote("early"), ray.put(3))

    assert asyncio.run(main()) == ["late", "early", 3]


@shows("await ref")
def test_asyncio_wait_for_gives_up(gate):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(gate.wait.remote(), 0.05)

    asyncio.run(main())


@shows("await ref")
def test_asyncio_wait_accepts_tasks_that_await_references(gate):
    async def value_of(ref):
        return await ref

    async def main():
        late = asyncio.create_task(value_of(gate.wait.remote()))
        early = asyncio.create_task(value_of(identity.remote("early")))
        done, pending = await asyncio.wait([late, early], return_when=asyncio.FIRST_COMPLETED)
        assert done == {early} and pending == {late}
        await gate.open.remote()
        return await late

    assert asyncio.run(main()) == "open"


@refuses("await ref")
def test_await_raises_the_failure():
    async def main():
        await fail_with.remote(KeyError("missing"))

    with pytest.raises(KeyError):
        asyncio.run(main())


@shows("references as arguments")
def test_a_reference_as_an_argument_arrives_as_its_value(echo):
    assert ray.get(echo.echo.remote(ray.put("value"))) == "value"


@shows("references as arguments")
def test_a_reference_as_a_named_argument_arrives_as_its_value(echo):
    positional, named = ray.get(echo.collect.remote(ray.put(1), option=ray.put(2)))
    assert positional == (1,) and named == {"option": 2}


@shows("references as arguments")
def test_a_reference_inside_a_list_arrives_as_a_reference(echo):
    inner = ray.put("inner")
    arrived, = ray.get(echo.echo.remote([inner]))
    assert isinstance(arrived, ray.ObjectRef) and arrived == inner
    assert ray.get(arrived) == "inner"


@shows("references as arguments")
def test_a_reference_inside_a_dictionary_arrives_as_a_reference(echo):
    arrived = ray.get(echo.echo.remote({"key": ray.put("inner")}))
    assert ray.get(arrived["key"]) == "inner"


@shows("references as arguments")
def test_a_reference_inside_an_object_arrives_as_a_reference():
    class Box:
        def __init__(self, content):
            self.content = content

    @ray.remote(num_cpus=0)
    def open_box(box):
        return isinstance(box.content, ray.ObjectRef), ray.get(box.content)

    assert ray.get(open_box.remote(Box(ray.put("inside")))) == (True, "inside")


@shows("references as arguments")
def test_results_are_arguments_before_they_exist(gate):
    late = gate.wait.remote("chained")
    result = identity.remote(identity.remote(late))
    gate.open.remote()
    assert ray.get(result) == "chained"


@shows("references as arguments")
def test_a_call_waits_for_its_argument(gate, echo):
    result = identity.remote(gate.wait.remote())
    with pytest.raises(GetTimeoutError):
        ray.get(result, timeout=0.2)
    gate.open.remote()
    assert ray.get(result) == "open"


@shows("references as arguments")
def test_an_argument_of_a_constructor_may_be_a_reference():
    counter = Counter.remote(ray.put(10))
    assert ray.get(counter.add.remote()) == 11


@refuses("references as arguments")
def test_a_failed_argument_fails_the_call():
    with pytest.raises(ValueError):
        ray.get(identity.remote(fail_with.remote(ValueError("argument"))))


@refuses("references as arguments")
def test_a_failed_argument_fails_the_call_of_an_actor(echo):
    with pytest.raises(ValueError):
        ray.get(echo.echo.remote(fail_with.remote(ValueError("argument"))))
    assert ray.get(echo.echo.remote("still alive")) == "still alive"


@shows("references in values")
def test_a_reference_returned_in_a_list_can_be_got(echo):
    @ray.remote(num_cpus=0)
    def make():
        return [identity.remote(1), identity.remote(2)]

    assert ray.get(ray.get(make.remote())) == [1, 2]


@shows("references in values")
def test_a_returned_reference_is_not_resolved():
    @ray.remote(num_cpus=0)
    def make():
        return ray.put("inner")

    inner = ray.get(make.remote())
    assert isinstance(inner, ray.ObjectRef) and ray.get(inner) == "inner"


@shows("references in values")
def test_a_value_that_a_task_has_put_stays_after_the_task():
    @ray.remote(num_cpus=0)
    def make():
        return [ray.put("put by a task"), identity.remote("made by another")]

    refs = ray.get(make.remote())
    time.sleep(3)
    assert ray.get(refs) == ["put by a task", "made by another"]


@shows("references in values")
def test_a_reference_in_a_value_keeps_the_value_alive(echo):
    outer = ray.put([ray.put("kept" * 100_000)])
    gc.collect()
    assert ray.get(ray.get(outer)[0]) == "kept" * 100_000


@shows("references in values")
def test_an_actor_keeps_a_reference_as_long_as_it_likes():
    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self, refs):
            self.refs = refs

        def read(self):
            return ray.get(self.refs)

    keeper = Keeper.remote()
    ray.get(keeper.keep.remote([ray.put("x" * 200_000)]))
    gc.collect()
    assert ray.get(keeper.read.remote()) == ["x" * 200_000]


@shows("references in values")
def test_an_actor_waits_for_a_reference_that_it_was_given(gate):
    @ray.remote(num_cpus=0)
    def read(refs):
        return ray.get(refs[0])

    result = read.remote([gate.wait.remote("later")])
    gate.open.remote()
    assert ray.get(result) == "later"


@refuses("references in values")
def test_a_failure_behind_a_returned_reference_is_raised_when_it_is_got():
    @ray.remote(num_cpus=0)
    def make():
        return [fail_with.remote(KeyError("behind"))]

    refs = ray.get(make.remote())
    with pytest.raises(KeyError):
        ray.get(refs)


@shows("pickled references")
def test_cloudpickle_keeps_a_reference_usable():
    ref = ray.put("through bytes")
    again = ray.cloudpickle.loads(ray.cloudpickle.dumps(ref))
    assert again == ref and ray.get(again) == "through bytes"


@shows("pickled references")
def test_bytes_of_a_reference_are_usable_in_another_process():
    ref = ray.put("through bytes")

    @ray.remote(num_cpus=0)
    def read(data):
        return ray.get(ray.cloudpickle.loads(data))

    assert ray.get(read.remote(ray.cloudpickle.dumps(ref))) == "through bytes"


@shows("pickled references")
def test_cloudpickle_of_a_structure_keeps_its_references():
    table = {"a": ray.put(1), "b": [ray.put(2)]}
    again = ray.cloudpickle.loads(ray.cloudpickle.dumps(table))
    assert ray.get(again["a"]) == 1 and ray.get(again["b"]) == [2]


@shows("pickled references")
def test_a_reference_is_read_from_a_file(tmp_path):
    path = tmp_path / "reference"
    path.write_bytes(ray.cloudpickle.dumps([ray.put("stored")]))
    gc.collect()

    @ray.remote(num_cpus=0)
    def read(path):
        with open(path, "rb") as file:
            ref, = ray.cloudpickle.loads(file.read())
        return ref.hex(), ray.get(ref)

    ref, = ray.cloudpickle.loads(path.read_bytes())
    assert ray.get(read.remote(str(path))) == (ref.hex(), "stored")


@shows("pickled references")
def test_a_function_may_close_over_a_reference():
    ref = ray.put("enclosed")

    @ray.remote(num_cpus=0)
    def read():
        return ray.get(ref)

    assert ray.get(read.remote()) == "enclosed"


class Sealed:
    """An object that pickles its content by itself, and reads it late."""

    def __init__(self, content):
        self.data = None
        self.content = content

    def __getstate__(self):
        return self.data or ray.cloudpickle.dumps(self.content)

    def __setstate__(self, data):
        self.data = data

    def open(self):
        return ray.cloudpickle.loads(self.data)


@shows("pickled references")
def test_an_object_may_pickle_its_references_by_itself(echo):
    sealed = Sealed({"first": ray.put(1), "second": [ray.put(2)]})
    arrived = ray.get(echo.echo.remote([ray.put(0), sealed]))
    assert ray.get(arrived[0]) == 0
    content = arrived[1].open()
    assert (ray.get(content["first"]), ray.get(content["second"])) == (1, [2])


@refuses("pickled references")
def test_a_reference_whose_owner_has_died_is_lost():
    @ray.remote(num_cpus=0)
    class Owner:
        def put(self, value):
            return ray.cloudpickle.dumps(ray.put(value))

    owner = Owner.remote()
    data = ray.get(owner.put.remote("lost"))
    assert ray.get(ray.cloudpickle.loads(data)) == "lost"
    gc.collect()
    ray.kill(owner)
    time.sleep(1)
    with pytest.raises(ObjectLostError):
        ray.get(ray.cloudpickle.loads(data), timeout=60)


@refuses("pickled references")
def test_an_arbitrary_text_is_no_reference():
    with pytest.raises(pickle.UnpicklingError):
        ray.cloudpickle.loads(b"not a pickle")


@shows("ray.cloudpickle")
def test_cloudpickle_takes_lambdas():
    factor = 3
    assert ray.cloudpickle.loads(ray.cloudpickle.dumps(lambda number: number * factor))(2) == 6


@shows("ray.cloudpickle")
def test_cloudpickle_takes_local_classes():
    class Local:
        value = 5

    assert ray.cloudpickle.loads(ray.cloudpickle.dumps(Local)).value == 5


@shows("ray.cloudpickle")
def test_a_handle_passes_through_cloudpickle():
    counter = Counter.remote(5)
    again = ray.cloudpickle.loads(ray.cloudpickle.dumps(counter))
    assert ray.get(again.add.remote()) == 6


@shows("ray.cloudpickle")
def test_a_handle_in_bytes_is_usable_in_another_process():
    counter = Counter.remote(7)

    @ray.remote(num_cpus=0)
    def add(data):
        return ray.get(ray.cloudpickle.loads(data)["counter"].add.remote())

    assert ray.get(add.remote(ray.cloudpickle.dumps({"counter": counter}))) == 8
    assert ray.get(counter.value.remote()) == 8


@refuses("ray.cloudpickle")
def test_cloudpickle_refuses_locks():
    with pytest.raises(TypeError):
        ray.cloudpickle.dumps(threading.Lock())


@shows("ObjectRef")
def test_a_result_outlives_its_actor():
    worker = Echo.remote()
    ref = worker.echo.remote("kept")
    assert ray.get(ref) == "kept"
    ray.kill(worker)
    assert ray.get(ref) == "kept"
