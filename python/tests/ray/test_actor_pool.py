# SPDX-License-Identifier: Apache-2.0
"""ray.util.ActorPool."""
import time

import pytest
import ray
from ray.exceptions import ActorDiedError
from ray.util import ActorPool

from suite import Gate, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
class Worker:
    def double(self, number):
        return 2 * number

    def slow_double(self, number):
        time.sleep(0.3 if number == 1 else 0)
        return 2 * number

    def wait(self, gate):
        return ray.get(gate.wait.remote("waited"))

    def fail(self, text):
        raise ValueError(text)

    def die(self, _):
        import os
        os._exit(1)


def double(actor, number):
    return actor.double.remote(number)


@pytest.fixture(scope="module")
def workers(cluster):
    return [Worker.remote() for _ in range(2)]


@pytest.fixture
def pool(workers):
    return ActorPool(workers)


@shows("ActorPool.map")
def test_map_gives_results_in_order(pool):
    assert list(pool.map(double, [1, 2, 3, 4, 5])) == [2, 4, 6, 8, 10]


@shows("ActorPool.map")
def test_map_of_nothing_gives_nothing(pool):
    assert list(pool.map(double, [])) == []


@shows("ActorPool.map")
def test_map_keeps_the_order_when_the_first_is_slow(pool):
    assert list(pool.map(lambda actor, number: actor.slow_double.remote(number), [1, 2, 3])) == [2, 4, 6]


@shows("ActorPool.map")
def test_map_can_be_used_again(pool):
    assert list(pool.map(double, [1])) == [2]
    assert list(pool.map(double, [5])) == [10]


@refuses("ActorPool.map")
def test_map_raises_the_failure(pool):
    results = pool.map(lambda actor, text: actor.fail.remote(text), ["no"])
    with pytest.raises(ValueError):
        list(results)


@refuses("ActorPool.map")
def test_map_needs_values(pool):
    with pytest.raises(TypeError):
        pool.map(double)


@shows("ActorPool.map_unordered")
def test_map_unordered_gives_all_results(pool):
    assert sorted(pool.map_unordered(double, [1, 2, 3, 4])) == [2, 4, 6, 8]


@shows("ActorPool.map_unordered")
def test_map_unordered_gives_what_is_ready_first(workers):
    pool = ActorPool(list(workers))
    gate = Gate.remote()

    def work(actor, number):
        return actor.wait.remote(gate) if number == 0 else actor.double.remote(number)

    results = pool.map_unordered(work, [0, 1])
    assert next(results) == 2
    gate.open.remote()
    assert next(results) == "waited"


@shows("ActorPool.map_unordered")
def test_map_unordered_of_nothing_gives_nothing(pool):
    assert list(pool.map_unordered(double, [])) == []


@refuses("ActorPool.map_unordered")
def test_map_unordered_raises_the_failure(pool):
    with pytest.raises(ValueError):
        list(pool.map_unordered(lambda actor, text: actor.fail.remote(text), ["no"]))


@shows("ActorPool.submit", "ActorPool.get_next")
def test_results_come_in_the_order_of_their_submission(pool):
    for number in range(4):
        pool.submit(double, number)
    assert [pool.get_next() for _ in range(4)] == [0, 2, 4, 6]


@shows("ActorPool.submit")
def test_more_work_than_actors_can_be_submitted(pool):
    for number in range(10):
        pool.submit(double, number)
    results = []
    while pool.has_next():
        results.append(pool.get_next())
    assert results == [2 * number for number in range(10)]


@shows("ActorPool.submit")
def test_submit_returns_nothing(pool):
    assert pool.submit(double, 1) is None
    assert pool.get_next() == 2


@refuses("ActorPool.submit")
def test_submit_needs_a_value(pool):
    with pytest.raises(TypeError):
        pool.submit(double)


@refuses("ActorPool.submit")
def test_what_is_submitted_must_be_callable(pool):
    with pytest.raises(TypeError):
        pool.submit("double", 1)


@shows("ActorPool.get_next")
def test_get_next_waits_for_its_turn(workers):
    pool = ActorPool(list(workers))
    pool.submit(lambda actor, number: actor.slow_double.remote(number), 1)
    pool.submit(lambda actor, number: actor.slow_double.remote(number), 2)
    assert [pool.get_next(), pool.get_next()] == [2, 4]


@shows("ActorPool.get_next")
def test_get_next_after_a_timeout_gives_the_same_result(workers):
    pool = ActorPool(list(workers))
    gate = Gate.remote()
    pool.submit(lambda actor, _: actor.wait.remote(gate), None)
    with pytest.raises(TimeoutError):
        pool.get_next(timeout=0.1)
    gate.open.remote()
    assert pool.get_next(timeout=60) == "waited"


@refuses("ActorPool.get_next")
def test_get_next_without_work_is_stop_iteration(pool):
    with pytest.raises(StopIteration):
        pool.get_next()


@refuses("ActorPool.get_next")
def test_get_next_after_get_next_unordered_is_a_value_error(workers):
    pool = ActorPool(list(workers))
    gate = Gate.remote()
    pool.submit(lambda actor, _: actor.wait.remote(gate), None)
    pool.submit(double, 5)
    assert pool.get_next_unordered(timeout=60) == 10
    with pytest.raises(ValueError):
        pool.get_next()
    gate.open.remote()
    assert pool.get_next_unordered(timeout=60) == "waited"


@refuses("ActorPool.get_next")
def test_get_next_raises_the_failure_and_the_pool_goes_on(pool):
    pool.submit(lambda actor, text: actor.fail.remote(text), "no")
    with pytest.raises(ValueError):
        pool.get_next()
    pool.submit(double, 3)
    assert pool.get_next() == 6


@shows("ActorPool.get_next_unordered")
def test_the_first_that_is_ready_comes_first(workers):
    pool = ActorPool(list(workers))
    gate = Gate.remote()
    pool.submit(lambda actor, _: actor.wait.remote(gate), None)
    pool.submit(double, 4)
    assert pool.get_next_unordered(timeout=60) == 8
    gate.open.remote()
    assert pool.get_next_unordered(timeout=60) == "waited"


@shows("ActorPool.get_next_unordered")
def test_get_next_unordered_gives_each_result_once(pool):
    for number in range(5):
        pool.submit(double, number)
    assert sorted(pool.get_next_unordered() for _ in range(5)) == [0, 2, 4, 6, 8]
    assert not pool.has_next()


@shows("ActorPool.get_next_unordered")
def test_get_next_unordered_times_out(workers):
    pool = ActorPool(list(workers))
    gate = Gate.remote()
    pool.submit(lambda actor, _: actor.wait.remote(gate), None)
    with pytest.raises(TimeoutError):
        pool.get_next_unordered(timeout=0.1)
    gate.open.remote()
    assert pool.get_next_unordered(timeout=60) == "waited"


@refuses("ActorPool.get_next_unordered")
def test_get_next_unordered_without_work_is_stop_iteration(pool):
    with pytest.raises(StopIteration):
        pool.get_next_unordered()


@shows("ActorPool.has_next")
def test_has_next_tells_whether_there_are_results_to_come(pool):
    assert not pool.has_next()
    pool.submit(double, 1)
    assert pool.has_next()
    pool.get_next()
    assert not pool.has_next()


@shows("ActorPool.has_next")
def test_has_next_counts_work_that_no_actor_has_yet(pool):
    for number in range(3):
        pool.submit(double, number)
    pool.get_next()
    pool.get_next()
    assert pool.has_next()
    assert pool.get_next() == 4


@shows("ActorPool.has_next")
def test_a_pool_without_actors_has_nothing_to_come():
    assert not ActorPool([]).has_next()


@refuses("ActorPool.has_next")
def test_has_next_takes_no_argument(pool):
    with pytest.raises(TypeError):
        pool.has_next(1)


@shows("ActorPool.has_free")
def test_has_free_tells_whether_an_actor_is_idle(pool):
    assert pool.has_free()
    pool.submit(double, 1)
    assert pool.has_free()
    pool.submit(double, 2)
    assert not pool.has_free()
    pool.get_next()
    assert pool.has_free()
    pool.get_next()


@shows("ActorPool.has_free")
def test_a_pool_without_actors_has_none_free():
    assert not ActorPool([]).has_free()


@shows("ActorPool.has_free")
def test_a_pool_with_waiting_work_has_none_free(pool):
    for number in range(3):
        pool.submit(double, number)
    assert not pool.has_free()
    for _ in range(3):
        pool.get_next()
    assert pool.has_free()


@refuses("ActorPool.has_free")
def test_has_free_takes_no_argument(pool):
    with pytest.raises(TypeError):
        pool.has_free(1)


@shows("ActorPool.pop_idle")
def test_an_idle_actor_can_be_taken(workers):
    pool = ActorPool(list(workers))
    assert pool.pop_idle() in workers
    assert pool.pop_idle() in workers
    assert pool.pop_idle() is None


@shows("ActorPool.pop_idle")
def test_no_actor_can_be_taken_while_all_are_busy(workers):
    pool = ActorPool(list(workers))
    for number in range(2):
        pool.submit(double, number)
    assert pool.pop_idle() is None
    pool.get_next()
    assert pool.pop_idle() in workers


@shows("ActorPool.pop_idle")
def test_an_actor_that_was_taken_can_be_used(workers):
    pool = ActorPool(list(workers))
    assert ray.get(pool.pop_idle().double.remote(6)) == 12


@refuses("ActorPool.pop_idle")
def test_pop_idle_takes_no_argument(pool):
    with pytest.raises(TypeError):
        pool.pop_idle(1)


@shows("ActorPool.push")
def test_an_actor_can_be_added(workers):
    pool = ActorPool([workers[0]])
    pool.push(workers[1])
    pool.submit(double, 1)
    assert pool.has_free()
    assert pool.get_next() == 2


@shows("ActorPool.push")
def test_an_added_actor_takes_work_that_waits(workers):
    pool = ActorPool([workers[0]])
    gate = Gate.remote()
    pool.submit(lambda actor, _: actor.wait.remote(gate), None)
    pool.submit(double, 7)
    pool.push(workers[1])
    assert pool.get_next_unordered(timeout=60) == 14
    gate.open.remote()
    assert pool.get_next_unordered(timeout=60) == "waited"


@shows("ActorPool.push")
def test_an_actor_that_was_taken_can_be_put_back(workers):
    pool = ActorPool(list(workers))
    pool.push(pool.pop_idle())
    assert list(pool.map(double, [1, 2, 3])) == [2, 4, 6]


@refuses("ActorPool.push")
def test_an_actor_of_the_pool_cannot_be_added_again(pool, workers):
    with pytest.raises(ValueError):
        pool.push(workers[0])


@refuses("ActorPool.push")
def test_a_busy_actor_of_the_pool_cannot_be_added_again(workers):
    pool = ActorPool([workers[0]])
    pool.submit(double, 1)
    with pytest.raises(ValueError):
        pool.push(workers[0])
    assert pool.get_next() == 2


@shows("ActorPool")
def test_a_dead_actor_leaves_the_pool(workers):
    pool = ActorPool([Worker.remote(), workers[0]])
    pool.submit(double, 1)
    pool.submit(lambda actor, number: actor.die.remote(number), 2)
    assert pool.get_next() == 2
    with pytest.raises(ActorDiedError):
        pool.get_next(timeout=60)


@shows("ActorPool")
def test_the_pool_is_also_in_its_own_module():
    from ray.util.actor_pool import ActorPool as same
    assert same is ActorPool


@shows("ActorPool")
def test_two_pools_may_share_actors(workers):
    first, second = ActorPool(list(workers)), ActorPool(list(workers))
    first.submit(double, 1)
    second.submit(double, 2)
    assert (second.get_next(), first.get_next()) == (4, 2)


@refuses("ActorPool")
def test_a_pool_needs_actors_that_can_be_listed():
    with pytest.raises(TypeError):
        ActorPool(5)
