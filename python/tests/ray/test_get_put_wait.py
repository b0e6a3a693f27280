# SPDX-License-Identifier: Apache-2.0
"""ray.get, ray.put and ray.wait."""
import threading
import time

import numpy as np
import pytest
import ray
from ray.exceptions import GetTimeoutError, RayError

from suite import Counter, Echo, fail_with, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@shows("ray.get", "ray.put")
@pytest.mark.parametrize("value", [
    None, True, 0, -1, 2**80, 1.5, float("inf"), "", "text", "ünïcödé", b"", b"\x00\xff", [], [1, [2, [3]]], (),
    (1, "a"), {}, {"a": {"b": 1}}, {1, 2}, frozenset([3]), range(3), 1 + 2j,
], ids=repr)
def test_a_value_that_was_put_is_got_equal(value):
    got = ray.get(ray.put(value))
    assert got == value
    assert type(got) is type(value)


@shows("ray.get")
def test_get_of_one_reference_gives_the_value():
    assert ray.get(identity.remote(7)) == 7


@shows("ray.get")
def test_get_of_a_list_gives_values_in_the_order_of_the_list(gate):
    slow = gate.wait.remote("slow")
    fast = identity.remote("fast")
    ray.get(fast)
    gate.open.remote()
    assert ray.get([slow, fast]) == ["slow", "fast"]


@shows("ray.get")
def test_get_of_an_empty_list_is_an_empty_list():
    assert ray.get([]) == []


@shows("ray.get")
def test_get_accepts_the_same_reference_twice():
    ref = ray.put("twin")
    assert ray.get([ref, ref]) == ["twin", "twin"]


@shows("ray.get")
def test_get_of_many_references_gives_all_of_them():
    refs = [ray.put(number) for number in range(200)]
    assert ray.get(refs) == list(range(200))


@shows("ray.get")
def test_get_can_be_repeated():
    ref = identity.remote([1, 2])
    assert ray.get(ref) == ray.get(ref) == [1, 2]


@shows("ray.get")
def test_get_accepts_its_argument_by_name():
    assert ray.get(object_refs=[ray.put(1)]) == [1]


@shows("ray.get")
def test_get_within_its_timeout_gives_the_value():
    assert ray.get(identity.remote("soon"), timeout=60) == "soon"


@shows("ray.get", "GetTimeoutError")
def test_get_raises_get_timeout_error_when_the_value_is_late(gate):
    with pytest.raises(GetTimeoutError):
        ray.get(gate.wait.remote(), timeout=0.1)


@shows("GetTimeoutError")
def test_get_timeout_error_is_a_timeout_error_and_a_ray_error(gate):
    late = gate.wait.remote()
    with pytest.raises(TimeoutError):
        ray.get(late, timeout=0.05)
    with pytest.raises(RayError):
        ray.get(late, timeout=0.05)


@shows("ray.get")
def test_get_with_timeout_zero_polls(gate):
    late = gate.wait.remote("now")
    begun = time.monotonic()
    with pytest.raises(GetTimeoutError):
        ray.get(late, timeout=0)
    assert time.monotonic() - begun < 5
    ray.get(gate.open.remote())
    assert ray.get(late) == "now"
    assert ray.get(late, timeout=0) == "now"


@shows("ray.get", "GetTimeoutError")
def test_a_value_can_be_got_after_a_timeout(gate):
    late = gate.wait.remote("late")
    with pytest.raises(GetTimeoutError):
        ray.get(late, timeout=0.05)
    gate.open.remote()
    assert ray.get(late) == "late"


@refuses("GetTimeoutError")
def test_one_late_value_makes_get_of_a_list_time_out(gate):
    with pytest.raises(GetTimeoutError):
        ray.get([ray.put(1), gate.wait.remote()], timeout=0.1)


@shows("ray.get")
def test_get_waits_at_least_as_long_as_its_timeout(gate):
    begun = time.monotonic()
    with pytest.raises(GetTimeoutError):
        ray.get(gate.wait.remote(), timeout=0.3)
    assert time.monotonic() - begun >= 0.29


@shows("ray.get")
def test_get_of_a_list_raises_the_failure_without_waiting_for_the_rest(gate):
    failed = fail_with.remote(ValueError("first"))
    with pytest.raises(ValueError):
        ray.get([failed, gate.wait.remote()], timeout=60)


@shows("ray.get")
def test_get_works_in_threads_of_the_driver():
    results = []

    def work(number):
        results.append(ray.get(identity.remote(number)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [0, 1, 2, 3]


@shows("ray.get")
def test_get_works_inside_a_task():
    @ray.remote(num_cpus=0)
    def outer():
        return ray.get(identity.remote("inner")) + "!"

    assert ray.get(outer.remote()) == "inner!"


@shows("ray.get")
def test_each_get_gives_a_new_object():
    ref = ray.put([1])
    first = ray.get(ref)
    first.append(2)
    assert ray.get(ref) == [1]


@refuses("ray.get")
@pytest.mark.parametrize("wrong", [1, "text", None, {"a": 1}], ids=repr)
def test_get_of_something_else_than_references_is_a_value_error(wrong):
    with pytest.raises(ValueError):
        ray.get(wrong)


@refuses("ray.get")
def test_get_of_a_tuple_is_a_value_error():
    with pytest.raises(ValueError):
        ray.get((ray.put(1),))


@refuses("ray.get")
def test_get_of_a_list_with_something_else_is_a_type_error():
    with pytest.raises(TypeError):
        ray.get([ray.put(1), 2])


@refuses("ray.get")
def test_get_does_not_know_another_keyword():
    with pytest.raises(TypeError):
        ray.get(ray.put(1), patience=1)


@refuses("ray.get")
def test_get_of_a_handle_is_a_value_error(echo):
    with pytest.raises(ValueError):
        ray.get(echo)


@shows("ray.put")
def test_put_returns_a_reference():
    assert isinstance(ray.put(1), ray.ObjectRef)


@shows("ray.put")
def test_two_puts_of_one_value_are_two_references():
    value = "same"
    assert ray.put(value) != ray.put(value)


@shows("ray.put")
def test_what_was_put_does_not_change_with_the_original():
    original = [1]
    ref = ray.put(original)
    original.append(2)
    assert ray.get(ref) == [1]


@shows("ray.put")
def test_an_array_that_was_put_is_got_equal():
    array = np.arange(300_000, dtype=np.float32).reshape(3, -1)
    got = ray.get(ray.put(array))
    assert got.dtype == array.dtype and got.shape == array.shape
    assert np.array_equal(got, array)


@shows("ray.put")
def test_a_large_array_that_was_got_is_read_only():
    got = ray.get(ray.put(np.zeros(1_000_000)))
    assert not got.flags.writeable
    with pytest.raises(ValueError):
        got[0] = 1


@shows("ray.put")
def test_an_array_does_not_change_with_its_original():
    array = np.zeros(500_000)
    ref = ray.put(array)
    array[:] = 1
    assert ray.get(ref).sum() == 0


@shows("ray.put")
def test_arrays_within_containers_are_got_equal():
    value = {"weights": [np.ones((100, 100)), np.arange(5)], "step": 3}
    got = ray.get(ray.put(value))
    assert np.array_equal(got["weights"][0], np.ones((100, 100)))
    assert np.array_equal(got["weights"][1], np.arange(5)) and got["step"] == 3


@shows("ray.put")
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float64", "complex64", "U3", "S4"])
def test_arrays_of_each_type_are_got_equal(dtype):
    array = np.array([0, 1, 1, 0]).astype(dtype)
    got = ray.get(ray.put(array))
    assert got.dtype == array.dtype and np.array_equal(got, array)


@shows("ray.put")
def test_many_bytes_are_got_equal():
    data = bytes(range(256)) * 8192
    assert ray.get(ray.put(data)) == data


@shows("ray.put")
def test_a_function_can_be_put():
    addend = 5
    assert ray.get(ray.put(lambda number: number + addend))(1) == 6


@shows("ray.put")
def test_an_object_of_a_local_class_can_be_put():
    class Point:
        def __init__(self, x):
            self.x = x

    assert ray.get(ray.put(Point(4))).x == 4


@shows("ray.put")
def test_a_value_that_was_put_is_the_argument_of_a_task():
    assert ray.get(identity.remote(ray.put("by reference"))) == "by reference"


@shows("ray.put")
def test_a_task_can_put_and_return_the_reference():
    @ray.remote(num_cpus=0)
    def put_inside():
        return [ray.put("from inside")]

    ref, = ray.get(put_inside.remote())
    assert ray.get(ref) == "from inside"


@shows("ray.put")
def test_a_handle_can_be_put():
    counter = Counter.remote(1)
    again = ray.get(ray.put(counter))
    assert ray.get(again.add.remote()) == 2


@refuses("ray.put")
def test_a_reference_cannot_be_put():
    with pytest.raises(TypeError):
        ray.put(ray.put(1))


@refuses("ray.put")
def test_what_cannot_be_pickled_cannot_be_put():
    with pytest.raises(TypeError):
        ray.put(threading.Lock())


@refuses("ray.put")
def test_put_needs_a_value():
    with pytest.raises(TypeError):
        ray.put()


@shows("ray.put")
def test_a_list_of_references_can_be_put():
    inner = [ray.put(1), ray.put(2)]
    assert ray.get(ray.get(ray.put(inner))) == [1, 2]


@shows("ray.wait")
def test_wait_gives_what_is_ready_and_the_rest(gate):
    done, late = ray.put(1), gate.wait.remote()
    assert ray.wait([late, done]) == ([done], [late])


@shows("ray.wait")
def test_wait_returns_lists():
    ready, rest = ray.wait([ray.put(1)])
    assert isinstance(ready, list) and isinstance(rest, list)


@shows("ray.wait")
def test_wait_gives_one_by_default_though_more_are_ready():
    refs = [ray.put(number) for number in range(3)]
    ready, rest = ray.wait(refs)
    assert (len(ready), len(rest)) == (1, 2)
    assert set(ready + rest) == set(refs)


@shows("ray.wait")
def test_wait_gives_as_many_as_are_wanted():
    refs = [ray.put(number) for number in range(4)]
    ready, rest = ray.wait(refs, num_returns=3)
    assert (len(ready), len(rest)) == (3, 1)


@shows("ray.wait")
def test_wait_keeps_the_order_of_the_list():
    refs = [ray.put(number) for number in range(5)]
    ready, rest = ray.wait(refs, num_returns=5)
    assert ready == refs and rest == []


@shows("ray.wait")
def test_wait_keeps_the_order_of_the_rest(gate):
    late = [gate.wait.remote(number) for number in range(3)]
    done = ray.put("done")
    ready, rest = ray.wait([late[0], done, late[1], late[2]])
    assert ready == [done] and rest == late


@shows("ray.wait")
def test_wait_returns_after_its_timeout_with_what_is_ready(gate):
    done, late = ray.put(1), gate.wait.remote()
    begun = time.monotonic()
    assert ray.wait([done, late], num_returns=2, timeout=0.2) == ([done], [late])
    assert 0.19 <= time.monotonic() - begun < 10


@shows("ray.wait")
def test_wait_with_timeout_zero_polls(gate):
    late = gate.wait.remote()
    assert ray.wait([late], timeout=0) == ([], [late])


@shows("ray.wait")
def test_wait_of_an_empty_list_is_two_empty_lists():
    assert ray.wait([]) == ([], [])


@shows("ray.wait")
def test_a_failed_task_counts_as_ready():
    failed = fail_with.remote(ValueError("no"))
    assert ray.wait([failed]) == ([failed], [])


@shows("ray.wait")
def test_a_call_of_a_dead_actor_counts_as_ready():
    counter = Counter.remote()
    died = counter.exit.remote()
    assert ray.wait([died], timeout=60) == ([died], [])


@shows("ray.wait")
def test_wait_accepts_fetch_local():
    ref = ray.put(1)
    assert ray.wait([ref], fetch_local=False) == ([ref], [])


@shows("ray.wait")
def test_waiting_in_a_loop_sees_every_result_once():
    worker = Echo.remote()
    rest = [worker.echo.remote(number) for number in range(6)]
    seen = []
    while rest:
        ready, rest = ray.wait(rest)
        seen += ray.get(ready)
    assert sorted(seen) == [0, 1, 2, 3, 4, 5]


@shows("ray.wait")
def test_wait_ends_when_the_value_arrives(gate):
    late = gate.wait.remote()
    threading.Timer(0.2, gate.open.remote).start()
    assert ray.wait([late], timeout=60) == ([late], [])


@refuses("ray.wait")
def test_wait_for_one_reference_without_a_list_is_a_type_error():
    with pytest.raises(TypeError):
        ray.wait(ray.put(1))


@refuses("ray.wait")
def test_wait_for_something_else_is_a_type_error():
    with pytest.raises(TypeError):
        ray.wait([1, 2])


@refuses("ray.wait")
def test_wait_for_a_reference_twice_is_a_value_error():
    ref = ray.put(1)
    with pytest.raises(ValueError):
        ray.wait([ref, ref])


@refuses("ray.wait")
@pytest.mark.parametrize("count", [0, -1, 2])
def test_wait_for_an_impossible_number_is_a_value_error(count):
    with pytest.raises(ValueError):
        ray.wait([ray.put(1)], num_returns=count)


@refuses("ray.wait")
def test_wait_with_a_negative_timeout_is_a_value_error():
    with pytest.raises(ValueError):
        ray.wait([ray.put(1)], timeout=-1)


@refuses("ray.wait")
def test_wait_for_a_tuple_is_a_type_error():
    with pytest.raises(TypeError):
        ray.wait((ray.put(1),))
