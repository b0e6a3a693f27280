# SPDX-License-Identifier: Apache-2.0
"""ray.cancel of tasks and of calls of actors."""
import asyncio
import time

import pytest
import ray
from ray.exceptions import RayError, TaskCancelledError, WorkerCrashedError

from suite import Echo, eventually, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0, max_retries=0)
def sleep_in_steps(path):
    """Sleeps so that an interruption can arrive; leaves a mark when it has begun."""
    with open(path, "w", encoding="ascii") as file:
        file.write("begun")
    for _ in range(600):
        time.sleep(0.1)
    return "slept"


@ray.remote(num_cpus=0)
class Sleeper:
    """An async actor whose sleep notices its cancellation."""

    def __init__(self):
        self.canceled = 0
        self.begun = 0

    async def sleep(self, seconds=60):
        self.begun += 1
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        return "slept"

    async def counts(self):
        return self.begun, self.canceled


@ray.remote(num_cpus=0)
class Counter:
    """A plain actor that counts the calls that ran to their end."""

    def __init__(self):
        self.number = self.waited = 0

    def add(self):
        self.number += 1

    def value(self):
        return self.number

    def wait(self, seconds):
        time.sleep(seconds)
        self.waited += 1
        return self.number

    def waits(self):
        return self.waited


@shows("ray.cancel")
def test_a_task_that_waits_for_its_argument_is_canceled(gate):
    waiting = identity.remote(gate.wait.remote())
    ray.cancel(waiting)
    with pytest.raises(TaskCancelledError):
        ray.get(waiting, timeout=60)


@shows("ray.cancel")
def test_a_task_that_waits_for_resources_is_canceled():
    holder = Echo.options(resources={"widget": 2}).remote()
    ray.get(holder.echo.remote())
    waiting = identity.options(resources={"widget": 1}).remote(1)
    ray.cancel(waiting)
    with pytest.raises(TaskCancelledError):
        ray.get(waiting, timeout=60)
    ray.kill(holder)


@shows("ray.cancel")
def test_a_running_task_is_interrupted(tmp_path):
    mark = tmp_path / "mark"
    running = sleep_in_steps.remote(str(mark))
    eventually(mark.exists)
    ray.cancel(running)
    with pytest.raises(TaskCancelledError):
        ray.get(running, timeout=60)


@shows("ray.cancel")
def test_force_ends_the_process_of_a_task(tmp_path):
    mark = tmp_path / "mark"
    running = sleep_in_steps.remote(str(mark))
    eventually(mark.exists)
    ray.cancel(running, force=True)
    with pytest.raises((WorkerCrashedError, TaskCancelledError)):
        ray.get(running, timeout=60)


@shows("ray.cancel")
def test_a_task_that_has_ended_keeps_its_result():
    done = identity.remote("done")
    assert ray.get(done) == "done"
    ray.cancel(done)
    assert ray.get(done) == "done"


@shows("ray.cancel")
def test_cancel_returns_nothing():
    done = identity.remote(1)
    ray.get(done)
    assert ray.cancel(done) is None


@shows("ray.cancel")
def test_a_task_may_be_canceled_twice(gate):
    waiting = identity.remote(gate.wait.remote())
    ray.cancel(waiting)
    ray.cancel(waiting)
    with pytest.raises(TaskCancelledError):
        ray.get(waiting, timeout=60)


@shows("ray.cancel")
def test_who_depends_on_a_canceled_task_fails_with_it(gate):
    waiting = identity.remote(gate.wait.remote())
    dependent = identity.remote(waiting)
    ray.cancel(waiting)
    with pytest.raises(RayError) as raised:
        ray.get(dependent, timeout=60)
    assert isinstance(raised.value, TaskCancelledError)


@shows("ray.cancel")
def test_wait_counts_a_canceled_task_as_ready(gate):
    waiting = identity.remote(gate.wait.remote())
    ray.cancel(waiting)
    assert ray.wait([waiting], timeout=60) == ([waiting], [])


@shows("cancel of an actor's call")
def test_a_running_async_method_is_canceled():
    sleeper = Sleeper.remote()
    running = sleeper.sleep.remote()
    eventually(lambda: ray.get(sleeper.counts.remote())[0] == 1)
    ray.cancel(running)
    with pytest.raises(TaskCancelledError):
        ray.get(running, timeout=60)
    assert ray.get(sleeper.counts.remote()) == (1, 1)


@shows("cancel of an actor's call")
def test_other_calls_of_an_async_actor_go_on():
    sleeper = Sleeper.remote()
    first, second = sleeper.sleep.remote(), sleeper.sleep.remote(2)
    eventually(lambda: ray.get(sleeper.counts.remote())[0] == 2)
    ray.cancel(first)
    assert ray.get(second, timeout=60) == "slept"


@shows("cancel of an actor's call")
def test_a_call_queued_at_the_actor_is_canceled():
    counter = Counter.remote()
    ray.get(counter.value.remote())
    running = counter.wait.remote(2)
    queued = counter.add.remote()
    time.sleep(0.5)
    ray.cancel(queued)
    with pytest.raises(TaskCancelledError):
        ray.get(queued, timeout=60)
    assert ray.get(running) == 0
    assert ray.get(counter.waits.remote(), timeout=60) == 1


@shows("cancel of an actor's call")
def test_a_call_that_waits_for_its_argument_is_canceled(gate, echo):
    waiting = echo.echo.remote(gate.wait.remote())
    ray.cancel(waiting)
    with pytest.raises(TaskCancelledError):
        ray.get(waiting, timeout=60)
    gate.open.remote()
    assert ray.get(echo.echo.remote("alive"), timeout=60) == "alive"


@shows("cancel of an actor's call")
def test_a_running_plain_method_is_not_interrupted_but_its_result_is_canceled():
    counter = Counter.remote()
    ray.get(counter.value.remote())
    running = counter.wait.remote(2)
    time.sleep(0.5)
    ray.cancel(running)
    with pytest.raises(TaskCancelledError):
        ray.get(running, timeout=60)
    assert ray.get(counter.waits.remote(), timeout=60) == 1


@shows("cancel of an actor's call")
def test_a_running_plain_method_can_ask_whether_it_is_canceled(tmp_path):
    mark = tmp_path / "mark"

    @ray.remote(num_cpus=0)
    class Asking:
        def work(self, path):
            self.noticed = False
            open(path, "w", encoding="ascii").close()
            for _ in range(600):
                if ray.get_runtime_context().is_canceled():
                    self.noticed = True
                    break
                time.sleep(0.1)

        def has_noticed(self):
            return self.noticed

    asking = Asking.remote()
    running = asking.work.remote(str(mark))
    eventually(mark.exists)
    ray.cancel(running)
    assert ray.get(asking.has_noticed.remote(), timeout=60) is True


@shows("cancel of an actor's call")
def test_a_method_is_canceled_with_the_task_that_called_it():
    sleeper = Sleeper.remote()
    ray.get(sleeper.counts.remote())

    @ray.remote(num_cpus=0, max_retries=0)
    def outer(handle):
        return ray.get(handle.sleep.remote())

    running = outer.remote(sleeper)
    eventually(lambda: ray.get(sleeper.counts.remote())[0] == 1)
    ray.cancel(running)
    with pytest.raises(TaskCancelledError):
        ray.get(running, timeout=60)
    eventually(lambda: ray.get(sleeper.counts.remote()) == (1, 1))


@refuses("cancel of an actor's call")
def test_force_is_refused_for_calls_of_actors(echo):
    call = echo.sleep.remote(0.5)
    with pytest.raises(ValueError):
        ray.cancel(call, force=True)
    ray.get(call)


@refuses("ray.cancel")
@pytest.mark.parametrize("wrong", [1, None, "text", []], ids=repr)
def test_cancel_of_something_else_is_a_type_error(wrong):
    with pytest.raises(TypeError):
        ray.cancel(wrong)


@refuses("ray.cancel")
def test_cancel_of_a_handle_is_a_type_error(echo):
    with pytest.raises(TypeError):
        ray.cancel(echo)


@refuses("ray.cancel")
def test_force_must_be_named(gate):
    with pytest.raises(TypeError):
        ray.cancel(identity.remote(gate.wait.remote()), True)


@shows("cancel of a generator")
def test_a_generator_is_canceled():
    @ray.remote(num_cpus=0, max_retries=0)
    def endless():
        number = 0
        while True:
            yield number
            number += 1
            time.sleep(0.05)

    generator = endless.remote()
    assert ray.get(next(generator), timeout=60) == 0
    ray.cancel(generator)
    with pytest.raises(TaskCancelledError):
        for ref in generator:
            ray.get(ref, timeout=60)


@shows("cancel of a generator")
def test_an_async_generator_of_an_actor_is_canceled():
    @ray.remote(num_cpus=0)
    class Endless:
        async def count(self):
            number = 0
            while True:
                yield number
                number += 1
                await asyncio.sleep(0.05)

        async def alive(self):
            return True

    actor = Endless.remote()
    generator = actor.count.remote()
    assert ray.get(next(generator), timeout=60) == 0
    ray.cancel(generator)
    with pytest.raises(TaskCancelledError):
        for ref in generator:
            ray.get(ref, timeout=60)
    assert ray.get(actor.alive.remote(), timeout=60)


@shows("cancel of a generator")
def test_items_from_before_the_cancellation_stay():
    @ray.remote(num_cpus=0, max_retries=0)
    def endless():
        yield "first"
        for _ in range(600):
            time.sleep(0.1)

    generator = endless.remote()
    first = next(generator)
    assert ray.get(first, timeout=60) == "first"
    ray.cancel(generator)
    assert ray.get(first) == "first"


@refuses("cancel of a generator")
def test_force_is_refused_for_generators_of_actors():
    @ray.remote(num_cpus=0)
    class Few:
        def count(self):
            yield 1

    generator = Few.remote().count.remote()
    with pytest.raises(ValueError):
        ray.cancel(generator, force=True)
