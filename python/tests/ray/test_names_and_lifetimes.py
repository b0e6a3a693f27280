# SPDX-License-Identifier: Apache-2.0
"""Named actors, name spaces, ray.kill, exits, lifetimes and restarts."""
import gc
import os
import signal
import time

import pytest
import ray
from ray.exceptions import ActorDiedError, RayActorError, RayError

from suite import Counter, Echo, eventually, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
class Leaving:
    def __init__(self, path=None):
        self.path = path

    def leave(self):
        ray.actor.exit_actor()

    def pid(self):
        return os.getpid()

    def __ray_shutdown__(self):
        if self.path:
            with open(self.path, "w", encoding="ascii") as file:
                file.write("left")


@ray.remote(num_cpus=0, max_restarts=1)
class Phoenix:
    """An actor that is restarted once; `start` counts in a file how often it was constructed."""

    def __init__(self, path):
        with open(path, "a", encoding="ascii") as file:
            file.write("x")
        self.number = 0
        self.path = path

    def add(self):
        self.number += 1
        return self.number

    def exit(self):
        os._exit(1)

    def exit_once(self, mark):
        if not os.path.exists(mark):
            open(mark, "w", encoding="ascii").close()
            os._exit(1)
        return "survived"

    def pid(self):
        return os.getpid()

    def made(self):
        return os.path.getsize(self.path)

    def was_restarted(self):
        return ray.get_runtime_context().was_current_actor_reconstructed

    def fail_once(self, mark):
        if not os.path.exists(mark):
            open(mark, "w", encoding="ascii").close()
            raise ValueError("first time")
        return "second time"


def call_until_it_works(method, *arguments):
    """Calls a method of an actor that is being restarted until the call succeeds."""
    def attempt():
        try:
            return [ray.get(method.remote(*arguments), timeout=60)]
        except RayActorError:
            return None
    return eventually(attempt)[0]


def is_dead(method):
    try:
        ray.get(method.remote(), timeout=60)
    except ActorDiedError:
        return True
    return False


def name_is_free(name):
    try:
        ray.get_actor(name)
    except ValueError:
        return True
    return False


@shows("ray.get_actor")
def test_a_name_finds_its_actor():
    counter = Counter.options(name="found").remote(5)
    assert ray.get(ray.get_actor("found").add.remote()) == 6
    assert ray.get(counter.value.remote()) == 6


@shows("ray.get_actor")
def test_a_found_handle_is_equal_to_the_first():
    counter = Counter.options(name="equal").remote()
    assert ray.get_actor("equal") == counter


@ray.remote(num_cpus=0)
class Slow:
    """An actor whose constructor takes some seconds, and fails if it is told so."""

    def __init__(self, seconds, fails=False):
        time.sleep(seconds)
        if fails:
            raise ValueError("no fuel")

    def pid(self):
        return os.getpid()


@shows("ray.get_actor")
def test_creating_named_actors_does_not_wait_for_their_constructors():
    ray.get(Slow.remote(0).pid.remote())
    start = time.monotonic()
    actors = [Slow.options(name=f"slow {i}").remote(3) for i in range(3)]
    assert time.monotonic() - start < 2
    assert len(set(ray.get([actor.pid.remote() for actor in actors]))) == 3
    assert time.monotonic() - start < 7


@shows("ray.get_actor")
def test_an_actor_is_found_while_its_constructor_runs():
    @ray.remote(num_cpus=0)
    def find():
        return [ray.get_actor("starting")]

    start = time.monotonic()
    actor = Slow.options(name="starting").remote(6)
    found = ray.get_actor("starting")
    same = Slow.options(name="starting", get_if_exists=True).remote(0)
    of_task = ray.get(find.remote())[0]
    with pytest.raises(ValueError):
        Slow.options(name="starting").remote(0)
    assert time.monotonic() - start < 5
    assert found == actor == same == of_task
    assert len({ray.get(handle.pid.remote()) for handle in (actor, found, same, of_task)}) == 1
    assert time.monotonic() - start >= 6


@shows("ray.get_actor")
def test_a_name_is_free_after_its_constructor_has_failed():
    start = time.monotonic()
    actor = Slow.options(name="without fuel").remote(2, fails=True)
    found = ray.get_actor("without fuel")
    assert time.monotonic() - start < 1.8
    assert is_dead(actor.pid)
    assert is_dead(found.pid)
    del actor, found  # On Ray the name belongs to the dead actor as long as it has handles.
    gc.collect()
    eventually(lambda: name_is_free("without fuel"))
    ray.get(Slow.options(name="without fuel").remote(0).pid.remote())


@shows("ray.get_actor")
def test_a_task_finds_an_actor_by_name():
    counter = Counter.options(name="from a task").remote(1)

    @ray.remote(num_cpus=0)
    def find():
        return ray.get(ray.get_actor("from a task").add.remote())

    assert ray.get(find.remote()) == 2
    assert ray.get(counter.value.remote()) == 2


@shows("ray.get_actor", "namespace")
def test_an_actor_in_another_name_space_is_found_there():
    counter = Counter.options(name="elsewhere", namespace="other").remote(9)
    ray.get(counter.value.remote())
    with pytest.raises(ValueError):
        ray.get_actor("elsewhere")
    assert ray.get(ray.get_actor("elsewhere", namespace="other").value.remote()) == 9


@shows("ray.get_actor", "namespace")
def test_two_name_spaces_may_have_the_same_name():
    first = Counter.options(name="twin", namespace="one").remote(1)
    second = Counter.options(name="twin", namespace="two").remote(2)
    assert ray.get([ray.get_actor("twin", namespace="one").value.remote(),
                    ray.get_actor("twin", namespace="two").value.remote()]) == [1, 2]
    assert first != second


@shows("ray.get_actor", "namespace")
def test_the_name_space_of_init_holds():
    counter = Counter.options(name="in the suite").remote(3)
    assert ray.get_actor("in the suite", namespace="suite") == counter


@shows("ray.get_actor")
def test_a_name_may_contain_spaces_and_letters_of_other_languages():
    counter = Counter.options(name="größe / 1:2").remote(4)
    assert ray.get_actor("größe / 1:2") == counter


@shows("ray.get_actor", "namespace")
@pytest.mark.parametrize("name", ["n" * 200, "a/b", "*", "100%", "日本語 😀", "größe" * 20],
                         ids=["long", "slash", "star", "percent", "japanese", "umlauts"])
def test_names_and_name_spaces_are_of_any_kind(name):
    counter = Counter.options(name=name, namespace=name).remote(5)
    assert ray.get_actor(name, namespace=name) == counter
    with pytest.raises(ValueError):
        ray.get_actor(name)
    with pytest.raises(ray.exceptions.ActorAlreadyExistsError):
        Counter.options(name=name, namespace=name).remote(6)


@shows("ray.get_actor")
def test_a_method_may_have_a_long_name():
    @ray.remote(num_cpus=0)
    class Talker:
        def a_method_with_a_name_that_is_longer_than_the_names_that_most_methods_have(self):
            return 6

    actor = Talker.options(name="talker").remote()
    found = ray.get_actor("talker")
    assert found == actor
    assert ray.get(found.a_method_with_a_name_that_is_longer_than_the_names_that_most_methods_have.remote()) == 6


@shows("ray.get_actor")
def test_an_actor_that_is_busy_is_found_at_once(gate):
    @ray.remote(num_cpus=0)
    class Busy:
        def wait(self, refs):
            return ray.get(refs[0])

    busy = Busy.options(name="busy").remote()
    result = busy.wait.remote([gate.wait.remote("later")])
    found = ray.get_actor("busy")
    assert found == busy and "wait" in dir(found)
    gate.open.remote()
    assert ray.get(result, timeout=60) == "later"


@refuses("ray.get_actor")
def test_an_unknown_name_is_a_value_error():
    with pytest.raises(ValueError):
        ray.get_actor("no such actor")


@refuses("ray.get_actor")
def test_an_empty_name_is_a_value_error():
    with pytest.raises(ValueError):
        ray.get_actor("")


@refuses("ray.get_actor", "namespace")
def test_an_empty_name_space_is_a_value_error():
    with pytest.raises(ValueError):
        ray.get_actor("anything", namespace="")


@refuses("ray.get_actor", "namespace")
def test_a_name_space_must_be_a_text():
    with pytest.raises(TypeError):
        ray.get_actor("anything", namespace=5)


@refuses("ray.get_actor")
def test_a_taken_name_is_a_value_error():
    counter = Counter.options(name="taken").remote()
    ray.get(counter.value.remote())
    with pytest.raises(ValueError):
        Counter.options(name="taken").remote()


@refuses("ray.get_actor")
def test_a_taken_name_is_an_actor_already_exists_error():
    counter = Counter.options(name="taken too").remote()
    ray.get(counter.value.remote())
    with pytest.raises(ray.exceptions.ActorAlreadyExistsError):
        Counter.options(name="taken too").remote()


@shows("get_if_exists")
def test_get_if_exists_gives_the_one_that_has_the_name():
    first = Counter.options(name="shared", get_if_exists=True).remote(5)
    ray.get(first.add.remote())
    second = Counter.options(name="shared", get_if_exists=True).remote(100)
    assert ray.get(second.value.remote()) == 6
    assert first == second


@shows("get_if_exists")
def test_get_if_exists_makes_one_where_there_is_none():
    counter = Counter.options(name="new one", get_if_exists=True).remote(8)
    assert ray.get(counter.value.remote()) == 8


@shows("get_if_exists")
def test_two_tasks_that_get_if_exists_share_one_actor():
    @ray.remote(num_cpus=0)
    def add():
        counter = Counter.options(name="raced", get_if_exists=True, lifetime="detached").remote()
        return ray.get(counter.add.remote())

    assert sorted(ray.get([add.remote(), add.remote()])) == [1, 2]
    ray.kill(ray.get_actor("raced"))


@refuses("get_if_exists")
def test_get_if_exists_without_a_name_is_a_value_error():
    with pytest.raises(ValueError):
        Counter.options(get_if_exists=True).remote()


@shows("ray.util.list_named_actors")
def test_named_actors_are_listed():
    counter = Counter.options(name="listed").remote()
    ray.get(counter.value.remote())
    assert "listed" in ray.util.list_named_actors()


@shows("ray.util.list_named_actors")
def test_actors_of_all_name_spaces_are_listed_with_theirs():
    counter = Counter.options(name="far", namespace="away").remote()
    ray.get(counter.value.remote())
    assert {"name": "far", "namespace": "away"} in ray.util.list_named_actors(all_namespaces=True)
    assert "far" not in ray.util.list_named_actors()


@shows("ray.util.list_named_actors")
def test_a_killed_actor_is_not_listed():
    counter = Counter.options(name="gone soon").remote()
    ray.get(counter.value.remote())
    ray.kill(counter)
    eventually(lambda: "gone soon" not in ray.util.list_named_actors())


@refuses("ray.util.list_named_actors")
def test_list_named_actors_knows_no_other_keyword():
    with pytest.raises(TypeError):
        ray.util.list_named_actors(namespace="suite")


@shows("ray.kill")
def test_a_killed_actor_dies():
    counter = Counter.remote()
    ray.get(counter.value.remote())
    ray.kill(counter)
    eventually(lambda: is_dead(counter.value))


@shows("ray.kill")
def test_kill_ends_a_running_method():
    worker = Echo.remote()
    ray.get(worker.echo.remote())
    running = worker.sleep.remote(60)
    assert ray.wait([running], timeout=0.3) == ([], [running])
    ray.kill(worker)
    with pytest.raises(ActorDiedError):
        ray.get(running, timeout=30)


@shows("ray.kill")
def test_kill_ends_the_process():
    worker = Echo.remote()
    pid = ray.get(worker.pid.remote())
    ray.kill(worker)

    def ended():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(ended)


@shows("ray.kill")
def test_a_name_is_free_after_a_kill():
    counter = Counter.options(name="free again").remote(1)
    ray.get(counter.value.remote())
    ray.kill(counter)
    eventually(lambda: name_is_free("free again"))
    again = Counter.options(name="free again").remote(2)
    assert ray.get(again.value.remote()) == 2


@shows("ray.kill")
def test_kill_frees_what_the_actor_held():
    held = Echo.options(resources={"widget": 2}).remote()
    ray.get(held.echo.remote())
    ray.kill(held)
    eventually(lambda: ray.available_resources().get("widget") == 2)


@shows("ray.kill")
def test_kill_works_through_a_found_handle():
    counter = Counter.options(name="target").remote()
    ray.get(counter.value.remote())
    ray.kill(ray.get_actor("target"))
    eventually(lambda: is_dead(counter.value))


@shows("ray.kill")
def test_a_task_kills_an_actor():
    counter = Counter.remote()
    ray.get(counter.value.remote())

    @ray.remote(num_cpus=0)
    def kill(handle):
        ray.kill(handle)

    ray.get(kill.remote(counter))
    eventually(lambda: is_dead(counter.value))


@shows("ray.kill")
def test_a_dead_actor_may_be_killed_again():
    counter = Counter.remote()
    ray.get(counter.value.remote())
    ray.kill(counter)
    assert ray.kill(counter) is None


@refuses("ray.kill")
@pytest.mark.parametrize("wrong", [1, None, "name", []], ids=repr)
def test_kill_of_something_else_is_a_value_error(wrong):
    with pytest.raises(ValueError):
        ray.kill(wrong)


@refuses("ray.kill")
def test_kill_of_a_reference_is_a_value_error(echo):
    with pytest.raises(ValueError):
        ray.kill(echo.echo.remote())


@refuses("ray.kill")
def test_kill_of_a_class_is_a_value_error():
    with pytest.raises(ValueError):
        ray.kill(Counter)


@refuses("ray.kill")
def test_no_restart_must_be_named(echo):
    with pytest.raises(TypeError):
        ray.kill(echo, True)


@shows("ray.actor.exit_actor")
def test_an_actor_that_leaves_is_dead():
    actor = Leaving.remote()
    with pytest.raises(ActorDiedError):
        ray.get(actor.leave.remote(), timeout=60)
    with pytest.raises(ActorDiedError):
        ray.get(actor.pid.remote(), timeout=60)


@shows("ray.actor.exit_actor")
def test_an_async_actor_leaves():
    @ray.remote(num_cpus=0)
    class AsyncLeaving:
        async def leave(self):
            ray.actor.exit_actor()

    with pytest.raises(ActorDiedError):
        ray.get(AsyncLeaving.remote().leave.remote(), timeout=60)


@shows("ray.actor.exit_actor")
def test_an_actor_that_leaves_is_not_restarted():
    @ray.remote(num_cpus=0, max_restarts=-1)
    class Restartable:
        def leave(self):
            ray.actor.exit_actor()

        def alive(self):
            return True

    actor = Restartable.remote()
    with pytest.raises(ActorDiedError):
        ray.get(actor.leave.remote(), timeout=60)
    with pytest.raises(ActorDiedError):
        ray.get(actor.alive.remote(), timeout=60)


@refuses("ray.actor.exit_actor")
def test_the_driver_is_no_actor_that_can_leave():
    with pytest.raises(TypeError):
        ray.actor.exit_actor()


@shows("lifetime")
def test_an_actor_ends_with_its_last_handle():
    counter = Counter.options(name="short life").remote()
    ray.get(counter.value.remote())
    del counter
    gc.collect()
    eventually(lambda: name_is_free("short life"))


@shows("lifetime")
def test_calls_made_before_the_last_handle_went_still_run():
    result = Counter.remote(41).add.remote()
    assert ray.get(result) == 42


@shows("lifetime")
def test_a_handle_in_another_actor_keeps_an_actor_alive():
    @ray.remote(num_cpus=0)
    class Keeper:
        def keep(self, handles):
            self.handles = handles

        def value(self):
            return ray.get(self.handles[0].value.remote())

    keeper = Keeper.remote()
    counter = Counter.remote(3)
    ray.get(keeper.keep.remote([counter]))
    del counter
    gc.collect()
    time.sleep(0.3)
    assert ray.get(keeper.value.remote()) == 3


@shows("lifetime")
def test_a_detached_actor_outlives_its_creator():
    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            Counter.options(name="orphan", lifetime="detached").remote(6)
            return ray.get(ray.get_actor("orphan").value.remote())

    maker = Maker.remote()
    assert ray.get(maker.make.remote()) == 6
    ray.kill(maker)
    time.sleep(0.3)
    orphan = ray.get_actor("orphan")
    assert ray.get(orphan.add.remote()) == 7
    ray.kill(orphan)


@shows("lifetime")
def test_an_actor_ends_with_its_creator():
    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            self.child = Counter.remote()
            return self.child

    maker = Maker.remote()
    child = ray.get(maker.make.remote())
    ray.get(child.value.remote())
    ray.kill(maker)
    eventually(lambda: is_dead(child.value))


@shows("lifetime")
def test_a_detached_actor_stays_without_handles():
    Counter.options(name="stays", lifetime="detached").remote(2)
    gc.collect()
    time.sleep(0.3)
    assert ray.get(ray.get_actor("stays").value.remote()) == 2
    ray.kill(ray.get_actor("stays"))


@refuses("lifetime")
def test_an_unknown_lifetime_is_a_value_error():
    with pytest.raises(ValueError):
        Counter.options(lifetime="eternal").remote()


@refuses("lifetime")
def test_a_lifetime_of_another_type_is_a_type_error():
    with pytest.raises(TypeError):
        Counter.options(lifetime=True).remote()


@shows("max_restarts")
def test_a_restarted_actor_is_constructed_again_and_loses_its_state(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    assert ray.get([actor.add.remote(), actor.add.remote()]) == [1, 2]
    with pytest.raises(RayActorError):
        ray.get(actor.exit.remote(), timeout=60)
    assert call_until_it_works(actor.add) == 1
    assert ray.get(actor.made.remote()) == 2


@shows("max_restarts")
def test_a_restarted_actor_has_a_new_process(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    pid = ray.get(actor.pid.remote())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: call_until_it_works(actor.pid) != pid)


@shows("max_restarts")
def test_restarts_are_used_up(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    with pytest.raises(RayActorError):
        ray.get(actor.exit.remote(), timeout=60)
    call_until_it_works(actor.add)
    with pytest.raises(ActorDiedError):
        ray.get(actor.exit.remote(), timeout=60)
    with pytest.raises(ActorDiedError):
        ray.get(actor.add.remote(), timeout=60)


@shows("max_restarts")
def test_an_actor_can_tell_that_it_was_restarted(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    assert ray.get(actor.was_restarted.remote()) is False
    with pytest.raises(RayActorError):
        ray.get(actor.exit.remote(), timeout=60)
    assert call_until_it_works(actor.was_restarted) is True


@shows("max_restarts")
def test_kill_does_not_restart_by_default(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    ray.get(actor.add.remote())
    ray.kill(actor)
    eventually(lambda: is_dead(actor.add))


@shows("max_restarts")
def test_kill_with_no_restart_false_restarts(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    pid = ray.get(actor.pid.remote())
    ray.kill(actor, no_restart=False)
    eventually(lambda: call_until_it_works(actor.pid) != pid)
    assert ray.get(actor.made.remote()) == 2


@shows("max_restarts")
def test_a_restarted_actor_keeps_its_name(tmp_path):
    actor = Phoenix.options(name="phoenix").remote(str(tmp_path / "made"))
    with pytest.raises(RayActorError):
        ray.get(actor.exit.remote(), timeout=60)
    call_until_it_works(actor.add)
    assert ray.get(ray.get_actor("phoenix").made.remote()) == 2


@refuses("max_restarts")
def test_an_actor_is_not_restarted_by_default():
    counter = Counter.remote()
    with pytest.raises(ActorDiedError):
        ray.get(counter.exit.remote(), timeout=60)
    with pytest.raises(ActorDiedError):
        ray.get(counter.value.remote(), timeout=60)


@refuses("max_restarts")
def test_fewer_than_minus_one_restarts_are_a_value_error(tmp_path):
    with pytest.raises(ValueError):
        Phoenix.options(max_restarts=-2).remote(str(tmp_path / "made"))


@shows("max_task_retries")
def test_a_call_is_run_again_after_a_restart(tmp_path):
    actor = Phoenix.options(max_task_retries=1).remote(str(tmp_path / "made"))
    assert ray.get(actor.exit_once.remote(str(tmp_path / "mark")), timeout=60) == "survived"


@shows("max_task_retries")
def test_a_call_fails_with_the_restart_without_retries(tmp_path):
    actor = Phoenix.remote(str(tmp_path / "made"))
    with pytest.raises(RayActorError):
        ray.get(actor.exit_once.remote(str(tmp_path / "mark")), timeout=60)
    assert call_until_it_works(actor.exit_once, str(tmp_path / "mark")) == "survived"


@shows("max_task_retries")
def test_a_failing_method_is_run_again_where_that_is_asked_for(tmp_path):
    actor = Phoenix.options(max_task_retries=2).remote(str(tmp_path / "made"))
    method = actor.fail_once.options(retry_exceptions=True)
    assert ray.get(method.remote(str(tmp_path / "mark")), timeout=60) == "second time"


@shows("max_task_retries")
def test_a_failing_method_is_not_run_again_by_default(tmp_path):
    actor = Phoenix.options(max_task_retries=2).remote(str(tmp_path / "made"))
    with pytest.raises(ValueError):
        ray.get(actor.fail_once.remote(str(tmp_path / "mark")), timeout=60)


@refuses("max_task_retries")
def test_fewer_than_minus_one_retries_of_calls_are_a_value_error(tmp_path):
    with pytest.raises(ValueError):
        Phoenix.options(max_task_retries=-2).remote(str(tmp_path / "made"))


@shows("graceful end")
def test_ray_shutdown_runs_when_the_last_handle_goes(tmp_path):
    mark = tmp_path / "mark"
    actor = Leaving.remote(str(mark))
    ray.get(actor.pid.remote())
    del actor
    gc.collect()
    eventually(mark.exists)


@shows("graceful end")
def test_ray_terminate_runs_ray_shutdown(tmp_path):
    mark = tmp_path / "mark"
    actor = Leaving.remote(str(mark))
    ray.get(actor.pid.remote())
    actor.__ray_terminate__.remote()
    eventually(mark.exists)
    eventually(lambda: is_dead(actor.pid))


@shows("graceful end")
def test_a_kill_does_not_run_ray_shutdown(tmp_path):
    mark = tmp_path / "mark"
    actor = Leaving.remote(str(mark))
    ray.get(actor.pid.remote())
    ray.kill(actor)
    eventually(lambda: is_dead(actor.pid))
    assert not mark.exists()


@refuses("graceful end")
def test_calls_after_ray_terminate_raise(tmp_path):
    actor = Leaving.remote()
    ray.get(actor.pid.remote())
    actor.__ray_terminate__.remote()
    with pytest.raises(RayError) as raised:
        for _ in range(100):
            ray.get(actor.pid.remote(), timeout=60)
            time.sleep(0.1)
    assert isinstance(raised.value, ActorDiedError)
