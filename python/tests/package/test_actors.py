# SPDX-License-Identifier: Apache-2.0
"""Actors: creation, calls, exceptions, death, names, concurrency."""
import asyncio
import os
import sys
import threading
import time

import pytest

from tandem import _tandem, ray
from tandem.ray import exceptions


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    def pid(self):
        return os.getpid()

    def fail(self):
        raise KeyError("no such key")

    def die(self):
        os._exit(3)

    def leave(self):
        ray.actor.exit_actor()

    def items(self, count):
        yield from range(count)

    @ray.method(num_returns=2)
    def pair(self):
        return 1, "two"

    def variable(self, name):
        return os.environ.get(name)

    def namespace_and_name(self):
        context = ray.get_runtime_context()
        return context.namespace, context.get_actor_name()


def test_calls_run_in_order():
    counter = Counter.remote(10)
    assert ray.get([counter.add.remote() for _ in range(50)]) == list(range(11, 61))


def test_wrong_arguments_of_a_constructor_raise_at_once():
    with pytest.raises(TypeError):
        Counter.remote(1, 2, 3)


@ray.remote
class Brittle:
    def __init__(self):
        for number in range(40):
            print("a long line of the output before the end", number, "x" * 60, file=sys.stderr)
        try:
            self.descend(30)
        except KeyError as error:
            raise ValueError("the very last line of the cause") from error

    def descend(self, depth):
        if depth == 0:
            raise KeyError("depth")
        self.other(depth)

    def other(self, depth):
        self.descend(depth - 1)


def test_the_end_of_a_constructors_traceback_is_kept():
    with pytest.raises(exceptions.ActorDiedError) as caught:
        ray.get(Brittle.remote().__ray_ready__.remote())
    text = str(caught.value)
    assert "ValueError: the very last line of the cause" in text
    assert "Brittle.__init__()" in text
    assert "before the end 39" in text


def test_methods_cannot_be_called_directly():
    counter = Counter.remote()
    with pytest.raises(TypeError):
        counter.add()
    with pytest.raises(AttributeError):
        counter.no_such_method
    with pytest.raises(TypeError):
        Counter()


def test_exception_is_of_the_users_type():
    with pytest.raises(KeyError) as caught:
        ray.get(Counter.remote().fail.remote())
    assert isinstance(caught.value, exceptions.RayTaskError)
    assert isinstance(caught.value.cause, KeyError)
    assert "no such key" in str(caught.value) and "in fail" in str(caught.value)


def test_exception_without_pickle_keeps_its_text():
    class Unpicklable(Exception):
        def __init__(self):
            super().__init__("with a lock")
            self.lock = threading.Lock()

    @ray.remote
    class Thrower:
        def throw(self):
            raise Unpicklable

    with pytest.raises(exceptions.RayTaskError, match="with a lock"):
        ray.get(Thrower.remote().throw.remote())


def test_death_fails_calls():
    counter = Counter.remote()
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(counter.die.remote())
    with pytest.raises(exceptions.RayActorError):
        ray.get(counter.add.remote())


def test_constructor_that_raises_is_told_to_callers():
    @ray.remote
    class Broken:
        def __init__(self):
            raise ValueError("bad start")

        def method(self):
            pass

    with pytest.raises(exceptions.ActorDiedError, match="bad start"):
        ray.get(Broken.remote().method.remote())


def test_kill_and_exit():
    killed, leaving = Counter.remote(), Counter.remote()
    ray.get([killed.add.remote(), leaving.add.remote()])
    ray.kill(killed)
    leaving.leave.remote()
    for counter in (killed, leaving):
        with pytest.raises(exceptions.RayActorError):
            ray.get([counter.add.remote() for _ in range(10)])


def test_restart_constructs_again():
    counter = Counter.options(max_restarts=1, max_task_retries=-1).remote(5)
    first = ray.get(counter.pid.remote())
    assert ray.get(counter.add.remote()) == 6
    ray.kill(counter, no_restart=False)
    assert ray.get(counter.add.remote()) == 6
    assert ray.get(counter.pid.remote()) != first


def test_methods_are_retried_after_exceptions():
    @ray.remote(max_task_retries=2)
    class Flaky:
        def __init__(self):
            self.calls = 0

        @ray.method(retry_exceptions=[ValueError])
        def fail_twice(self):
            self.calls += 1
            if self.calls < 3:
                raise ValueError
            return self.calls

    assert ray.get(Flaky.remote().fail_twice.remote()) == 3


def test_names_and_namespaces():
    counter = Counter.options(name="named").remote()
    ray.get(counter.add.remote())
    assert ray.get(ray.get_actor("named").add.remote(4)) == 5
    assert "named" in ray.util.list_named_actors()
    assert ray.get(counter.namespace_and_name.remote()) == (
        ray.get_runtime_context().namespace, "named")
    with pytest.raises(ValueError):
        Counter.options(name="named").remote()
    again = Counter.options(name="named", get_if_exists=True).remote()
    assert ray.get(again.pid.remote()) == ray.get(counter.pid.remote())
    other = Counter.options(name="named", namespace="other").remote(7)
    assert ray.get(other.add.remote()) == 8
    assert ray.get(ray.get_actor("named", namespace="other").add.remote()) == 9
    with pytest.raises(ValueError, match="Failed to look up actor"):
        ray.get_actor("nobody")


def test_handles_travel():
    @ray.remote
    class Caller:
        def call(self, handles):
            return ray.get(handles["counter"].add.remote(2))

    assert ray.get(Caller.remote().call.remote({"counter": Counter.remote(1)})) == 3


def test_two_results_and_generators():
    counter = Counter.remote()
    first, second = counter.pair.remote()
    assert (ray.get(first), ray.get(second)) == (1, "two")
    assert [ray.get(ref) for ref in counter.items.remote(40)] == list(range(40))


def test_generator_that_raises_gives_its_items_first():
    @ray.remote
    class Generator:
        def items(self):
            yield 1
            raise ValueError("over")

    items = Generator.remote().items.remote()
    assert ray.get(next(items)) == 1
    with pytest.raises(ValueError, match="over"):
        ray.get(next(items))
    with pytest.raises(StopIteration):
        next(items)


def test_environment_variables():
    counter = Counter.options(runtime_env={"env_vars": {"TESTED_LATER": "1", "PYTHONUNBUFFERED": "1"}}).remote()
    assert ray.get([counter.variable.remote("TESTED_LATER"), counter.variable.remote("PYTHONUNBUFFERED")]) == ["1", "1"]
    with pytest.raises(NotImplementedError, match="conda"):
        Counter.options(runtime_env={"conda": "base"}).remote()


def test_coroutines_run_together():
    @ray.remote
    class Barrier:
        def __init__(self):
            self.event = asyncio.Event()

        async def wait(self):
            await self.event.wait()
            return "done"

        async def open(self):
            self.event.set()

        async def items(self, count):
            for item in range(count):
                await asyncio.sleep(0)
                yield item

        async def value_of(self, refs):
            return await refs[0]

    barrier = Barrier.remote()
    waiting = [barrier.wait.remote() for _ in range(5)]
    assert ray.wait(waiting, timeout=0.1)[0] == []
    ray.get(barrier.open.remote())
    assert ray.get(waiting) == ["done"] * 5
    assert [ray.get(ref) for ref in barrier.items.remote(3)] == [0, 1, 2]
    assert ray.get(barrier.value_of.remote([ray.put(7)])) == 7


def test_coroutine_is_cancelled():
    @ray.remote
    class Sleeper:
        def __init__(self):
            self.was_cancelled = False

        async def sleep(self):
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                self.was_cancelled = True
                raise

        async def outcome(self):
            return self.was_cancelled

    sleeper = Sleeper.remote()
    ref = sleeper.sleep.remote()
    time.sleep(0.5)
    ray.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(ref)
    for _ in range(100):
        if ray.get(sleeper.outcome.remote()):
            return
        time.sleep(0.1)
    pytest.fail("the coroutine was not cancelled")


@ray.remote
class AsyncExiting:
    async def pid(self):
        return os.getpid()

    async def exit(self):
        raise SystemExit(1)

    async def exit_in_stream(self):
        yield 1
        raise SystemExit(1)

    def exit_in_plain_stream(self):
        yield 1
        raise SystemExit(1)


def test_an_async_actor_exits():
    """On Ray 2.60 the caller of such a coroutine waits for ever."""
    actor = AsyncExiting.remote()
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.exit.remote(), timeout=30)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.pid.remote(), timeout=30)


@pytest.mark.parametrize("method", ["exit_in_stream", "exit_in_plain_stream"])
def test_an_async_actor_exits_in_a_stream(method):
    actor = AsyncExiting.remote()
    items = getattr(actor, method).options(num_returns="streaming").remote()
    assert ray.get(next(items), timeout=30) == 1
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(next(items), timeout=30)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.pid.remote(), timeout=30)


@ray.remote
class LosingItsLoop:
    async def exit_in_a_task(self):
        async def leave():
            raise SystemExit(1)
        self.task = asyncio.create_task(leave())
        await asyncio.sleep(600)

    async def stop_the_loop(self):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(600)


@pytest.mark.parametrize("method", ["exit_in_a_task", "stop_the_loop"])
def test_an_actor_whose_event_loop_has_ended_is_dead(method):
    actor = LosingItsLoop.remote()
    with pytest.raises(exceptions.ActorDiedError, match="event loop of the actor LosingItsLoop"):
        ray.get(getattr(actor, method).remote(), timeout=30)


def test_threads_and_concurrency_groups():
    @ray.remote(concurrency_groups={"io": 2})
    class Groups:
        def __init__(self):
            self.barrier = threading.Barrier(2)

        @ray.method(concurrency_group="io")
        def meet(self):
            self.barrier.wait(60)
            return threading.current_thread().name

        def name(self):
            return threading.current_thread().name

    groups = Groups.remote()
    assert all(name.startswith("io") for name in ray.get([groups.meet.remote(), groups.meet.remote()]))
    assert not ray.get(groups.name.remote()).startswith("io")
    assert ray.get(groups.name.options(concurrency_group="io").remote()).startswith("io")
    with pytest.raises(ValueError):
        ray.get(groups.name.options(concurrency_group="none").remote())


def test_ray_call_runs_a_function_on_the_object():
    assert ray.get(Counter.remote(8).__ray_call__.remote(lambda self, more: self.value + more, 4)) == 12


def test_unknown_options_are_refused():
    with pytest.raises(ValueError):
        Counter.options(colour="red")
    with pytest.raises(ValueError):
        ray.remote(num_returns=2)(type("C", (), {}))


def test_an_actor_whose_node_does_not_answer_is_unavailable_and_one_lost_with_it_has_died():
    silent = exceptions._exception_of(_tandem.E_ACTOR_UNAVAILABLE, "the actor's node does not answer",
                                      "node b has not answered node a for 10.0 s")
    assert type(silent) is exceptions.ActorUnavailableError
    assert "node b has not answered node a" in str(silent)
    lost = exceptions._exception_of(_tandem.E_ACTOR_DIED, "the actor died", "actor x is lost with its node b")
    assert type(lost) is exceptions.ActorDiedError
    assert not isinstance(silent, exceptions.ActorDiedError)
