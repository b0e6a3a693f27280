# SPDX-License-Identifier: Apache-2.0
"""Actors: ray.remote on classes, .remote, .options, handles, ray.method, order and state."""
import os
import time

import numpy as np
import pytest
import ray
from ray.exceptions import ActorDiedError, PendingCallsLimitExceeded, RayActorError

from suite import Counter, Echo, eventually, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


class Base:
    def __init__(self, name="base"):
        self.name = name

    def who(self):
        return self.name

    def kind(self):
        return "base"


@shows("actor class")
def test_the_methods_of_the_class_are_listed():
    assert "add" in dir(Counter)
    assert callable(getattr(Counter, "add"))


@shows("actor class")
def test_an_actor_runs_in_another_process(echo):
    assert ray.get(echo.pid.remote()) != os.getpid()


@shows("actor class")
def test_each_actor_has_a_process_of_its_own(echo):
    other = Echo.remote()
    assert ray.get(other.pid.remote()) != ray.get(echo.pid.remote())


@shows("actor class")
def test_an_actor_keeps_its_state_and_process():
    counter = Counter.remote()
    assert ray.get([counter.add.remote() for _ in range(5)]) == [1, 2, 3, 4, 5]
    assert len(set(ray.get([counter.pid.remote() for _ in range(3)]))) == 1


@shows("actor class")
def test_two_actors_do_not_share_state():
    first, second = Counter.remote(), Counter.remote(100)
    ray.get(first.add.remote(5))
    assert ray.get([first.value.remote(), second.value.remote()]) == [5, 100]


@shows("actor class")
def test_the_constructor_gets_positional_and_named_arguments():
    @ray.remote(num_cpus=0)
    class Holder:
        def __init__(self, *positional, **named):
            self.arguments = positional, named

        def read(self):
            return self.arguments

    assert ray.get(Holder.remote(1, 2, three=3).read.remote()) == ((1, 2), {"three": 3})


@shows("actor class")
def test_a_class_without_constructor_works():
    @ray.remote
    class Plain:
        def answer(self):
            return 42

    assert ray.get(Plain.remote().answer.remote()) == 42


@shows("actor class")
def test_remote_wraps_a_class_that_exists():
    assert ray.get(ray.remote(Base).remote("wrapped").who.remote()) == "wrapped"
    assert Base("plain").who() == "plain"


@shows("actor class")
def test_remote_with_options_wraps_a_class_that_exists():
    assert ray.get(ray.remote(num_cpus=0, num_gpus=0)(Base).remote().who.remote()) == "base"


@shows("actor class")
def test_methods_are_inherited():
    @ray.remote(num_cpus=0)
    class Child(Base):
        def kind(self):
            return "child of " + super().kind()

    child = Child.remote("heir")
    assert ray.get([child.who.remote(), child.kind.remote()]) == ["heir", "child of base"]


@shows("actor class")
def test_a_subclass_with_its_own_constructor_works():
    @ray.remote(num_cpus=0)
    class Child(Base):
        def __init__(self):
            super().__init__("from the child")

    assert ray.get(Child.remote().who.remote()) == "from the child"


@shows("actor class")
def test_class_attributes_and_static_methods_work():
    @ray.remote(num_cpus=0)
    class Mixed:
        limit = 3

        @staticmethod
        def double(number):
            return 2 * number

        def read(self):
            return self.limit, self.double(4)

    mixed = Mixed.remote()
    assert ray.get(mixed.read.remote()) == (3, 8)
    assert ray.get(mixed.double.remote(5)) == 10


@shows("actor class")
def test_class_methods_are_callable():
    @ray.remote(num_cpus=0)
    class Named:
        @classmethod
        def name(cls):
            return cls.__name__

    assert ray.get(Named.remote().name.remote()) == "Named"


@shows("actor class")
def test_a_local_class_that_sees_variables_around_it_works():
    secret = "closure"

    @ray.remote(num_cpus=0)
    class Local:
        def tell(self):
            return secret

    assert ray.get(Local.remote().tell.remote()) == "closure"


@shows("actor class")
def test_creation_does_not_wait_for_the_constructor(gate):
    @ray.remote(num_cpus=0)
    class Slow:
        def __init__(self, gates):
            self.value = ray.get(gates[0].wait.remote("constructed"))

        def read(self):
            return self.value

    slow = Slow.remote([gate])
    result = slow.read.remote()
    assert ray.wait([result], timeout=0.3) == ([], [result])
    gate.open.remote()
    assert ray.get(result) == "constructed"


@refuses("actor class")
def test_an_actor_class_cannot_be_instantiated_directly():
    with pytest.raises(TypeError):
        Counter()


@refuses("actor class")
def test_too_many_arguments_of_the_constructor_are_a_type_error_at_once():
    with pytest.raises(TypeError):
        Counter.remote(1, 2)


@refuses("actor class")
def test_an_unknown_argument_of_the_constructor_is_a_type_error_at_once():
    with pytest.raises(TypeError):
        Counter.remote(begin=1)


@refuses("actor class")
def test_a_missing_argument_of_the_constructor_is_a_type_error_at_once():
    @ray.remote(num_cpus=0)
    class Needs:
        def __init__(self, something):
            pass

    with pytest.raises(TypeError):
        Needs.remote()


@refuses("actor class")
def test_an_actor_class_cannot_be_a_base_class():
    with pytest.raises(TypeError):
        class Child(Counter):
            pass


@refuses("actor class")
def test_an_object_is_not_a_class():
    with pytest.raises(AssertionError):
        ray.remote(Base())


@refuses("actor class")
def test_a_constructor_that_raises_makes_its_actor_die():
    @ray.remote(num_cpus=0)
    class Broken:
        def __init__(self):
            raise ValueError("broken in the constructor")

        def ready(self):
            pass

    with pytest.raises(ActorDiedError, match="broken in the constructor"):
        ray.get(Broken.remote().ready.remote())


@refuses("actor class")
def test_a_constructor_that_raises_is_not_the_users_exception():
    @ray.remote(num_cpus=0)
    class Broken:
        def __init__(self):
            raise ValueError("no")

        def ready(self):
            pass

    with pytest.raises(RayActorError) as raised:
        ray.get(Broken.remote().ready.remote())
    assert not isinstance(raised.value, ValueError)


@shows("actor options")
def test_options_hold_for_one_actor_only():
    held = Echo.options(resources={"widget": 1}).remote()
    free = Echo.remote()
    assert ray.get(held.echo.remote(1)) == ray.get(free.echo.remote(1)) == 1
    eventually(lambda: ray.available_resources().get("widget") == 1)
    ray.kill(held)
    eventually(lambda: ray.available_resources().get("widget") == 2)


@shows("actor options")
def test_options_of_a_class_may_be_kept_and_used_again():
    template = Counter.options(num_cpus=0)
    assert ray.get([template.remote(1).value.remote(), template.remote(2).value.remote()]) == [1, 2]


@shows("actor options")
def test_options_override_the_decorator_of_a_class():
    @ray.remote(num_cpus=0, num_gpus=1)
    class Gpu:
        def count(self):
            return len(ray.get_gpu_ids())

    assert ray.get(Gpu.remote().count.remote()) == 1
    assert ray.get(Gpu.options(num_gpus=2).remote().count.remote()) == 2


@shows("actor options")
def test_an_actor_waits_for_resources_that_another_holds():
    first = Echo.options(resources={"widget": 2}).remote()
    ray.get(first.echo.remote())
    second = Echo.options(resources={"widget": 1}).remote()
    waiting = second.echo.remote("placed")
    assert ray.wait([waiting], timeout=0.5) == ([], [waiting])
    ray.kill(first)
    assert ray.get(waiting, timeout=60) == "placed"
    ray.kill(second)


@refuses("actor options")
@pytest.mark.parametrize("options", [
    {"number_of_cpus": 1}, {"num_cpus": -1}, {"num_gpus": 1.5}, {"resources": {"GPU": 1}}, {"lifetime": "forever"},
    {"max_concurrency": -1}, {"max_restarts": -2}, {"max_task_retries": -2}, {"num_returns": 2},
    {"max_retries": 1}, {"name": ""}, {"memory": -1},
], ids=str)
def test_an_impossible_option_of_an_actor_is_a_value_error(options):
    with pytest.raises(ValueError):
        Echo.options(**options).remote()


@refuses("actor options")
@pytest.mark.parametrize("options", [
    {"num_cpus": "1"}, {"num_gpus": "all"}, {"resources": 1}, {"name": 5}, {"max_restarts": 1.5}, {"runtime_env": "x"},
    {"get_if_exists": 1}, {"max_concurrency": "2"}, {"namespace": 7},
], ids=str)
def test_an_option_of_an_actor_of_a_wrong_type_is_a_type_error(options):
    with pytest.raises(TypeError):
        Echo.options(**options).remote()


@refuses("actor options")
def test_an_unknown_option_in_the_decorator_of_a_class_is_a_value_error():
    with pytest.raises(ValueError):
        ray.remote(cpus=1)(Base)


@shows("ActorHandle")
def test_creation_returns_a_handle(echo):
    assert isinstance(echo, ray.actor.ActorHandle)


@shows("ActorHandle")
def test_a_handle_works_in_a_task():
    counter = Counter.remote()

    @ray.remote(num_cpus=0)
    def add_two(handle):
        return ray.get(handle.add.remote(2))

    assert ray.get(add_two.remote(counter)) == 2
    assert ray.get(counter.value.remote()) == 2


@shows("ActorHandle")
def test_a_handle_works_in_another_actor():
    @ray.remote(num_cpus=0)
    class Caller:
        def __init__(self, others):
            self.others = others

        def total(self):
            return sum(ray.get([other.add.remote() for other in self.others]))

    caller = Caller.remote([Counter.remote(1), Counter.remote(2)])
    assert ray.get(caller.total.remote()) == 5


@shows("ActorHandle")
def test_an_actor_makes_actors():
    @ray.remote(num_cpus=0)
    class Maker:
        def make(self, start):
            self.child = Counter.remote(start)
            return self.child

    maker = Maker.remote()
    child = ray.get(maker.make.remote(7))
    assert ray.get(child.add.remote()) == 8


@shows("ActorHandle")
def test_methods_are_found_by_getattr(echo):
    assert ray.get(getattr(echo, "echo").remote("by name")) == "by name"


@shows("ActorHandle")
def test_a_handle_is_a_key_of_a_dictionary(echo):
    other = Echo.remote()
    table = {echo: "first", other: "second"}
    assert table[echo] == "first" and table[other] == "second"


@shows("ActorHandle")
def test_a_handle_that_travelled_is_equal_to_the_first(echo):
    assert ray.get(echo.echo.remote(echo)) == echo


@shows("ActorHandle")
def test_attributes_can_be_set_on_a_handle():
    counter = Counter.remote()
    counter.note = "of the driver"
    assert counter.note == "of the driver"


@shows("ActorHandle")
def test_the_text_of_a_handle_names_the_class(echo):
    assert "Echo" in repr(echo)


@refuses("ActorHandle")
def test_an_unknown_method_is_an_attribute_error(echo):
    with pytest.raises(AttributeError):
        echo.no_such_method.remote()


@refuses("ActorHandle")
def test_an_attribute_of_the_object_is_not_reachable():
    with pytest.raises(AttributeError):
        Counter.remote().number


@refuses("ActorHandle")
def test_hasattr_tells_whether_there_is_a_method(echo):
    assert hasattr(echo, "echo") and not hasattr(echo, "no_such_method")
    with pytest.raises(AttributeError):
        getattr(echo, "no_such_method")


@shows("actor method")
def test_calls_run_in_the_order_in_which_they_were_made():
    @ray.remote(num_cpus=0)
    class Log:
        def __init__(self):
            self.lines = []

        def append(self, line):
            self.lines.append(line)

        def read(self):
            return self.lines

    log = Log.remote()
    for number in range(100):
        log.append.remote(number)
    assert ray.get(log.read.remote()) == list(range(100))


@shows("actor method")
def test_special_methods_of_the_class_can_be_called():
    @ray.remote(num_cpus=0)
    class Shelf:
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index * 2

    shelf = Shelf.remote()
    assert ray.get(shelf.__len__.remote()) == 3
    assert ray.get(shelf.__getitem__.remote(4)) == 8


@refuses("actor method")
def test_a_special_method_that_the_class_lacks_is_no_attribute(echo):
    with pytest.raises(AttributeError):
        echo.__len__


@shows("actor method")
def test_a_call_that_waits_for_its_argument_keeps_its_place(gate):
    counter = Counter.remote()
    first = counter.add.remote(gate.wait.remote(10))
    second = counter.add.remote(1)
    assert ray.wait([second], timeout=0.3) == ([], [second])
    gate.open.remote()
    assert ray.get([first, second]) == [10, 11]


@shows("actor method")
def test_a_method_calls_a_method_of_another_actor():
    @ray.remote(num_cpus=0)
    class Relay:
        def pass_on(self, target, value):
            return ray.get(target.echo.remote(value)) + 1

    assert ray.get(Relay.remote().pass_on.remote(Echo.remote(), 1)) == 2


@shows("actor method")
def test_arrays_travel_through_a_method(echo):
    array = np.random.default_rng(1).random((256, 256))
    assert np.array_equal(ray.get(echo.echo.remote(array)), array)


@shows("actor method")
def test_a_method_runs_one_at_a_time():
    @ray.remote(num_cpus=0)
    class Exclusive:
        def __init__(self):
            self.inside = self.most = 0

        def enter(self):
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.02)
            self.inside -= 1

        def read(self):
            return self.most

    actor = Exclusive.remote()
    ray.get([actor.enter.remote() for _ in range(5)])
    assert ray.get(actor.read.remote()) == 1


@shows("actor method")
def test_options_of_a_call_give_several_results(echo):
    first, second = echo.echo.options(num_returns=2).remote((1, 2))
    assert ray.get([first, second]) == [1, 2]


@shows("actor method")
def test_the_calls_of_two_callers_are_all_served():
    counter = Counter.remote()

    @ray.remote(num_cpus=0)
    def add_many(handle, count):
        return ray.get([handle.add.remote() for _ in range(count)])[-1]

    ray.get([add_many.remote(counter, 20), add_many.remote(counter, 20)])
    assert ray.get(counter.value.remote()) == 40


@refuses("actor method")
def test_a_method_cannot_be_called_without_remote(echo):
    with pytest.raises(TypeError):
        echo.echo(1)


@refuses("actor method")
def test_wrong_arguments_of_a_method_are_a_type_error_at_once(echo):
    with pytest.raises(TypeError):
        echo.echo.remote(1, 2)
    with pytest.raises(TypeError):
        echo.echo.remote(other=2)


@refuses("actor method")
def test_an_argument_of_a_method_that_cannot_be_pickled_is_a_type_error(echo):
    with pytest.raises(TypeError):
        echo.echo.remote(number for number in range(3))


@refuses("actor method")
def test_a_result_of_a_method_that_cannot_be_pickled_is_a_type_error():
    @ray.remote(num_cpus=0)
    class Locks:
        def lock(self):
            import threading
            return threading.Lock()

        def alive(self):
            return True

    locks = Locks.remote()
    with pytest.raises(TypeError):
        ray.get(locks.lock.remote())
    assert ray.get(locks.alive.remote())


@shows("ray.method")
def test_method_declares_several_results():
    @ray.remote(num_cpus=0)
    class Pair:
        @ray.method(num_returns=2)
        def both(self):
            return "left", "right"

    left, right = Pair.remote().both.remote()
    assert ray.get([left, right]) == ["left", "right"]


@shows("ray.method")
def test_options_of_a_call_override_the_method():
    @ray.remote(num_cpus=0)
    class Pair:
        @ray.method(num_returns=2)
        def both(self):
            return "left", "right"

    assert ray.get(Pair.remote().both.options(num_returns=1).remote()) == ("left", "right")


@shows("ray.method")
def test_a_declared_method_can_be_called_in_its_own_class():
    class Plain:
        @ray.method(num_returns=2)
        def both(self):
            return 1, 2

    assert Plain().both() == (1, 2)


@shows("ray.method")
def test_what_a_method_declares_reaches_a_handle_that_travelled(echo):
    @ray.remote(num_cpus=0)
    class Pair:
        @ray.method(num_returns=2)
        def both(self):
            return 1, 2

    handle = ray.get(echo.echo.remote(Pair.remote()))
    assert ray.get(list(handle.both.remote())) == [1, 2]


@refuses("ray.method")
@pytest.mark.parametrize("keywords", [{"results": 2}, {"num_cpus": 1}], ids=str)
def test_an_unknown_option_of_a_method_is_an_assertion_error(keywords):
    with pytest.raises(AssertionError):
        @ray.method(**keywords)
        def nothing(self):
            pass


@shows("max_pending_calls")
def test_calls_within_the_limit_are_accepted():
    worker = Echo.options(max_pending_calls=5).remote()
    assert ray.get([worker.echo.remote(number) for number in range(3)]) == [0, 1, 2]


@shows("max_pending_calls")
def test_the_limit_frees_itself_when_calls_end():
    worker = Echo.options(max_pending_calls=2).remote()
    for number in range(6):
        assert ray.get(worker.echo.remote(number)) == number


@refuses("max_pending_calls")
def test_a_call_over_the_limit_raises_at_once():
    worker = Echo.options(max_pending_calls=2).remote()
    ray.get(worker.echo.remote())
    pending = [worker.sleep.remote(2) for _ in range(2)]
    with pytest.raises(PendingCallsLimitExceeded):
        worker.echo.remote()
    ray.get(pending)
