# SPDX-License-Identifier: Apache-2.0
"""Async actors, threaded actors and concurrency groups."""
import asyncio
import threading
import time

import pytest
import ray
from ray.exceptions import RayTaskError

from suite import CustomError, Gate, eventually, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
class Peak:
    """Counts how many methods run at once."""

    def __init__(self):
        self.inside = self.most = 0
        self.lock = threading.Lock()

    def enter(self, seconds=0.1):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        time.sleep(seconds)
        with self.lock:
            self.inside -= 1

    def read(self):
        return self.most


@ray.remote(num_cpus=0)
class AsyncPeak:
    def __init__(self):
        self.inside = self.most = 0

    async def enter(self, seconds=0.1):
        self.inside += 1
        self.most = max(self.most, self.inside)
        await asyncio.sleep(seconds)
        self.inside -= 1

    async def hold(self, gate):
        self.inside += 1
        await gate.wait.remote()

    async def count_inside(self):
        return self.inside

    async def read(self):
        return self.most


@ray.remote(num_cpus=0)
class Talk:
    """An async actor with methods of both kinds."""

    def __init__(self):
        self.items = []

    async def echo(self, value):
        return value

    def plain(self, value):
        return value

    async def fail(self, exception):
        raise exception

    async def thread_name(self):
        return threading.current_thread().ident

    async def call(self, other, value):
        return await other.echo.remote(value)

    async def has_loop(self):
        return asyncio.get_running_loop().is_running()

    async def gather(self, refs):
        return await asyncio.gather(*refs)


@ray.remote(num_cpus=0, concurrency_groups={"io": 2, "compute": 1})
class Groups:
    """Threads in two groups; `hold` lets a test keep a group busy."""

    def __init__(self):
        self.events = {}
        self.lock = threading.Lock()

    def event(self, name):
        with self.lock:
            return self.events.setdefault(name, threading.Event())

    @ray.method(concurrency_group="io")
    def hold_io(self, name):
        return self.event(name).wait(60)

    @ray.method(concurrency_group="compute")
    def hold_compute(self, name):
        return self.event(name).wait(60)

    @ray.method(concurrency_group="compute")
    def compute(self, value):
        return value

    def default(self, value):
        return value

    def hold_default(self, name):
        return self.event(name).wait(60)

    def thread(self):
        return threading.current_thread().ident

    def release(self, name):
        self.event(name).set()


@pytest.fixture(scope="module")
def talk(cluster):
    return Talk.remote()


@shows("async actor")
def test_an_async_method_returns_its_value(talk):
    assert ray.get(talk.echo.remote("value")) == "value"


@shows("async actor")
def test_a_plain_method_of_an_async_actor_works(talk):
    assert ray.get(talk.plain.remote("value")) == "value"


@shows("async actor")
def test_methods_of_an_async_actor_run_at_once(gate):
    actor = AsyncPeak.remote()
    held = [actor.hold.remote(gate) for _ in range(10)]
    eventually(lambda: ray.get(actor.count_inside.remote()) == 10)
    gate.open.remote()
    ray.get(held, timeout=60)


@shows("async actor")
def test_a_waiting_method_does_not_block_the_others(gate):
    waiting = gate.wait.remote("waited")
    assert ray.wait([waiting], timeout=0.1) == ([], [waiting])
    ray.get(gate.open.remote())
    assert ray.get(waiting) == "waited"


@shows("async actor")
def test_max_concurrency_limits_an_async_actor():
    actor = AsyncPeak.options(max_concurrency=2).remote()
    ray.get([actor.enter.remote(0.05) for _ in range(8)])
    assert ray.get(actor.read.remote()) <= 2


@shows("async actor")
def test_an_async_actor_takes_a_hundred_calls_at_once(gate):
    waiting = [gate.wait.remote(number) for number in range(100)]
    ray.get(gate.open.remote())
    assert ray.get(waiting) == list(range(100))


@shows("async actor")
def test_all_methods_run_in_the_same_thread(talk):
    assert len(set(ray.get([talk.thread_name.remote() for _ in range(5)]))) == 1


@shows("async actor")
def test_a_loop_runs_in_an_async_method(talk):
    assert ray.get(talk.has_loop.remote()) is True


@shows("async actor")
def test_an_async_method_awaits_another_actor(talk):
    other = Talk.remote()
    assert ray.get(talk.call.remote(other, "relayed")) == "relayed"


@shows("async actor")
def test_an_async_method_awaits_its_own_actor(talk):
    assert ray.get(talk.call.remote(talk, "self")) == "self"


@shows("async actor")
def test_an_async_method_gathers_references(talk):
    assert ray.get(talk.gather.remote([identity.remote(1), ray.put(2)])) == [1, 2]


@shows("async actor")
def test_an_async_method_may_call_get():
    """Ray warns about it, since the loop stands still meanwhile, but frameworks do it."""
    @ray.remote(num_cpus=0)
    class Blocking:
        async def read(self, refs):
            return ray.get(refs[0])

    assert ray.get(Blocking.remote().read.remote([ray.put("got")])) == "got"


@shows("async actor")
def test_an_async_method_calls_get_in_another_thread():
    @ray.remote(num_cpus=0)
    class Delegating:
        async def read(self, refs):
            return await asyncio.to_thread(ray.get, refs)

    assert ray.get(Delegating.remote().read.remote([ray.put(1), identity.remote(2)])) == [1, 2]


@shows("async actor")
def test_an_async_actor_keeps_background_tasks():
    @ray.remote(num_cpus=0)
    class Background:
        async def start(self):
            self.done = asyncio.Event()
            self.task = asyncio.create_task(self.work())

        async def work(self):
            await asyncio.sleep(0.1)
            self.done.set()

        async def finished(self):
            await self.done.wait()
            return True

    actor = Background.remote()
    ray.get(actor.start.remote())
    assert ray.get(actor.finished.remote(), timeout=60)


@shows("async actor")
def test_fast_calls_overtake_slow_ones(gate):
    @ray.remote(num_cpus=0)
    class Mixed:
        async def slow(self, gate):
            return await gate.wait.remote("slow")

        async def fast(self):
            return "fast"

    actor = Mixed.remote()
    slow = actor.slow.remote(gate)
    assert ray.get(actor.fast.remote(), timeout=60) == "fast"
    gate.open.remote()
    assert ray.get(slow) == "slow"


@shows("async actor")
def test_an_async_constructor_argument_works_with_asyncio_objects():
    @ray.remote(num_cpus=0)
    class Lines:
        def __init__(self, size):
            self.queue = asyncio.Queue(size)

        async def put(self, item):
            await self.queue.put(item)

        async def get(self):
            return await self.queue.get()

    lines = Lines.remote(1)
    waiting = lines.get.remote()
    lines.put.remote("item")
    assert ray.get(waiting) == "item"


@refuses("async actor")
def test_an_exception_of_an_async_method_is_of_the_users_type(talk):
    with pytest.raises(CustomError) as raised:
        ray.get(talk.fail.remote(CustomError(9)))
    assert isinstance(raised.value, RayTaskError)


@refuses("async actor")
def test_a_failed_method_leaves_an_async_actor_alive(talk):
    with pytest.raises(ZeroDivisionError):
        ray.get(talk.fail.remote(ZeroDivisionError()))
    assert ray.get(talk.echo.remote(1)) == 1


@refuses("async actor")
def test_wrong_arguments_of_an_async_method_are_a_type_error_at_once(talk):
    with pytest.raises(TypeError):
        talk.echo.remote()


@refuses("async actor")
def test_an_async_actor_refuses_a_negative_concurrency():
    with pytest.raises(ValueError):
        AsyncPeak.options(max_concurrency=-1).remote()


@shows("threaded actor")
def test_methods_of_a_threaded_actor_run_at_once():
    """Each method ends only after four of them have arrived at the barrier."""
    @ray.remote(num_cpus=0, max_concurrency=4)
    class Meeting:
        def __init__(self):
            self.barrier = threading.Barrier(4, timeout=60)

        def meet(self):
            self.barrier.wait()
            return "met"

    meeting = Meeting.remote()
    assert ray.get([meeting.meet.remote() for _ in range(4)], timeout=120) == ["met"] * 4


@shows("threaded actor")
def test_no_more_threads_run_than_were_asked_for():
    actor = Peak.options(max_concurrency=2).remote()
    ray.get([actor.enter.remote(0.05) for _ in range(8)])
    assert ray.get(actor.read.remote()) <= 2


@shows("threaded actor")
def test_without_max_concurrency_one_method_runs_at_a_time():
    actor = Peak.remote()
    ray.get([actor.enter.remote(0.02) for _ in range(5)])
    assert ray.get(actor.read.remote()) == 1


@shows("threaded actor")
def test_one_method_can_wait_for_another():
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Pair:
        def __init__(self):
            self.event = threading.Event()

        def wait(self):
            return self.event.wait(60)

        def set(self):
            self.event.set()

    pair = Pair.remote()
    waiting = pair.wait.remote()
    pair.set.remote()
    assert ray.get(waiting, timeout=60) is True


@shows("threaded actor")
def test_a_blocking_get_leaves_other_threads_free(gate):
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Blocking:
        def block(self, refs):
            return ray.get(refs[0])

        def quick(self):
            return "quick"

    actor = Blocking.remote()
    blocked = actor.block.remote([gate.wait.remote("unblocked")])
    assert ray.get(actor.quick.remote(), timeout=60) == "quick"
    gate.open.remote()
    assert ray.get(blocked) == "unblocked"


@shows("threaded actor")
def test_threads_share_self():
    @ray.remote(num_cpus=0, max_concurrency=4)
    class Shared:
        def __init__(self):
            self.items = []

        def add(self, item):
            self.items.append(item)

        def read(self):
            return sorted(self.items)

    shared = Shared.remote()
    ray.get([shared.add.remote(number) for number in range(20)])
    assert ray.get(shared.read.remote()) == list(range(20))


@refuses("threaded actor")
def test_an_exception_in_one_thread_leaves_the_actor_alive():
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Fragile:
        def fail(self):
            raise CustomError(3)

        def alive(self):
            return True

    actor = Fragile.remote()
    with pytest.raises(CustomError):
        ray.get(actor.fail.remote())
    assert ray.get(actor.alive.remote())


@refuses("threaded actor")
def test_a_negative_number_of_threads_is_a_value_error():
    with pytest.raises(ValueError):
        Peak.options(max_concurrency=-1).remote()


@refuses("threaded actor")
def test_a_number_of_threads_with_a_fraction_is_a_type_error():
    with pytest.raises(TypeError):
        Peak.options(max_concurrency=1.5).remote()


@shows("concurrency groups")
def test_a_busy_group_leaves_the_others_free():
    actor = Groups.remote()
    busy = actor.hold_compute.remote("a")
    assert ray.get(actor.default.remote("free"), timeout=60) == "free"
    ray.get(actor.release.remote("a"))
    assert ray.get(busy) is True


@shows("concurrency groups")
def test_a_busy_group_delays_its_own_methods():
    actor = Groups.remote()
    busy = actor.hold_compute.remote("a")
    waiting = actor.compute.remote("later")
    assert ray.wait([waiting], timeout=0.3) == ([], [waiting])
    ray.get(actor.release.remote("a"))
    assert ray.get([busy, waiting]) == [True, "later"]


@shows("concurrency groups")
def test_a_group_runs_as_many_methods_as_it_has_threads():
    actor = Groups.remote()
    held = [actor.hold_io.remote("a"), actor.hold_io.remote("b")]
    ray.get(actor.release.remote("b"))
    assert ray.get(held[1], timeout=60) is True
    ray.get(actor.release.remote("a"))
    assert ray.get(held[0], timeout=60) is True


@shows("concurrency groups")
def test_a_call_may_choose_its_group():
    actor = Groups.remote()
    busy = actor.hold_default.remote("a")
    moved = actor.default.options(concurrency_group="io").remote("moved")
    assert ray.get(moved, timeout=60) == "moved"
    ray.get(actor.release.options(concurrency_group="io").remote("a"))
    assert ray.get(busy) is True


@shows("concurrency groups")
def test_the_default_group_has_one_thread():
    actor = Groups.remote()
    assert len(set(ray.get([actor.thread.remote() for _ in range(5)]))) == 1


@shows("concurrency groups")
def test_groups_work_in_async_actors():
    @ray.remote(num_cpus=0, concurrency_groups={"io": 1})
    class AsyncGroups:
        def __init__(self):
            self.event = asyncio.Event()

        @ray.method(concurrency_group="io")
        async def hold(self, gate):
            return await gate.wait.remote("held")

        async def quick(self):
            return "quick"

    hold = Gate.remote()
    actor = AsyncGroups.remote()
    held = actor.hold.remote(hold)
    assert ray.get(actor.quick.remote(), timeout=60) == "quick"
    hold.open.remote()
    assert ray.get(held) == "held"


@shows("concurrency groups")
def test_a_limit_of_a_group_holds_in_async_actors():
    @ray.remote(num_cpus=0, concurrency_groups={"narrow": 1})
    class Narrow:
        def __init__(self):
            self.inside = self.most = 0

        @ray.method(concurrency_group="narrow")
        async def enter(self):
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0.02)
            self.inside -= 1

        async def read(self):
            return self.most

    actor = Narrow.remote()
    ray.get([actor.enter.remote() for _ in range(5)])
    assert ray.get(actor.read.remote()) == 1


@refuses("concurrency groups")
def test_options_cannot_give_groups():
    with pytest.raises(ValueError):
        Peak.options(concurrency_groups={"io": 1}).remote()


@refuses("concurrency groups")
def test_a_method_in_an_unknown_group_is_an_assertion_error():
    with pytest.raises(AssertionError):
        @ray.remote(num_cpus=0, concurrency_groups={"io": 1})
        class Unknown:
            @ray.method(concurrency_group="network")
            def work(self):
                pass

        Unknown.remote()


@ray.remote(num_cpus=0)
class Orderly:
    """Returns its argument; its methods are plain."""

    def back(self, value):
        return value


@ray.remote(num_cpus=0)
class AsyncOrderly:
    async def back(self, value):
        return value


@shows("allow_out_of_order_execution")
@pytest.mark.parametrize("make", [AsyncOrderly.remote, Orderly.options(max_concurrency=2).remote,
                                  Orderly.options(allow_out_of_order_execution=True).remote],
                         ids=["async", "threaded", "allowed"])
def test_calls_overtake_one_that_waits_for_its_argument(make, gate):
    actor = make()
    first = actor.back.remote(gate.wait.remote())
    assert ray.get(actor.back.remote(1), timeout=20) == 1
    gate.open.remote()
    assert ray.get(first, timeout=20) == "open"


@shows("allow_out_of_order_execution")
def test_a_plain_actor_keeps_the_order_of_calls_with_arguments_that_wait(gate):
    actor = Orderly.remote()
    first = actor.back.remote(gate.wait.remote())
    second = actor.back.remote(1)
    assert ray.wait([second], timeout=0.5)[0] == []
    gate.open.remote()
    assert ray.get([first, second], timeout=20) == ["open", 1]


@refuses("allow_out_of_order_execution")
def test_an_async_actor_cannot_promise_an_order():
    with pytest.raises(ValueError):
        AsyncOrderly.options(allow_out_of_order_execution=False).remote()
    with pytest.raises(ValueError):
        Orderly.options(max_concurrency=2, allow_out_of_order_execution=False).remote()
