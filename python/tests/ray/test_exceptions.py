# SPDX-License-Identifier: Apache-2.0
"""Exceptions: the user's own type, RayTaskError, the deaths of actors and the tree of classes."""
import os
import signal
import traceback

import pytest
import ray
from ray import exceptions
from ray.exceptions import (
    ActorDiedError, ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError, TaskCancelledError,
    WorkerCrashedError,
)

from suite import Counter, CustomError, Echo, eventually, fail_with, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


class FieldsError(Exception):
    """An exception whose constructor takes named fields only, so that pickle cannot make it."""

    def __init__(self, *, reason):
        super().__init__(reason)
        self.reason = reason


@shows("the user's own exception")
@pytest.mark.parametrize("exception", [
    ValueError("v"), TypeError("t"), KeyError("k"), IndexError("i"), RuntimeError("r"), ZeroDivisionError("z"),
    OSError(2, "o"), AssertionError("a"), NotImplementedError("n"), StopIteration("s"), UnicodeError("u"),
    FileNotFoundError(2, "f"), TimeoutError("t"), MemoryError("m"), RecursionError("r"), AttributeError("a"),
], ids=lambda value: type(value).__name__)
def test_a_task_raises_the_exceptions_own_type(exception):
    with pytest.raises(type(exception)):
        ray.get(fail_with.remote(exception))


@shows("the user's own exception")
@pytest.mark.parametrize("exception", [ValueError("v"), KeyError("k"), CustomError(4)], ids=repr)
def test_a_method_raises_the_exceptions_own_type(echo, exception):
    with pytest.raises(type(exception)):
        ray.get(echo.fail.remote(exception))


@shows("the user's own exception")
def test_a_users_class_can_be_caught(echo):
    with pytest.raises(CustomError):
        ray.get(echo.fail.remote(CustomError(17)))


@shows("the user's own exception")
def test_the_cause_has_the_fields_of_the_original(echo):
    with pytest.raises(CustomError) as raised:
        ray.get(echo.fail.remote(CustomError(17)))
    assert type(raised.value.cause) is CustomError
    assert raised.value.cause.code == 17


@shows("the user's own exception")
def test_fields_are_reachable_on_the_raised_exception_itself(echo):
    with pytest.raises(CustomError) as raised:
        ray.get(echo.fail.remote(CustomError(18)))
    assert raised.value.code == 18


@shows("the user's own exception")
def test_the_arguments_of_the_exception_arrive(echo):
    with pytest.raises(ValueError) as raised:
        ray.get(echo.fail.remote(ValueError("first", 2)))
    assert raised.value.cause.args == ("first", 2)


@shows("the user's own exception")
def test_a_base_class_catches_it():
    with pytest.raises(LookupError):
        ray.get(fail_with.remote(KeyError("x")))


@shows("the user's own exception")
def test_a_local_exception_class_arrives():
    class LocalError(Exception):
        pass

    @ray.remote(num_cpus=0)
    def fail():
        raise LocalError("local")

    with pytest.raises(RayTaskError) as raised:
        ray.get(fail.remote())
    assert type(raised.value.cause).__name__ == "LocalError"


@refuses("the user's own exception")
def test_an_exception_that_cannot_be_unpickled_is_an_unserializable_exception():
    @ray.remote(num_cpus=0)
    def fail():
        raise FieldsError(reason="no way to pickle this")

    with pytest.raises(exceptions.UnserializableException, match="no way to pickle this"):
        ray.get(fail.remote())


@refuses("the user's own exception")
def test_an_exception_with_a_lock_is_a_task_error():
    @ray.remote(num_cpus=0)
    def fail():
        import threading
        error = ValueError("has a lock")
        error.lock = threading.Lock()
        raise error

    with pytest.raises(RayTaskError, match="has a lock"):
        ray.get(fail.remote())


@shows("RayTaskError")
def test_a_failure_is_a_ray_task_error():
    with pytest.raises(RayTaskError):
        ray.get(fail_with.remote(ValueError("no")))


@shows("RayTaskError")
def test_a_failure_is_a_ray_error_too():
    with pytest.raises(RayError):
        ray.get(fail_with.remote(ValueError("no")))


@shows("RayTaskError")
def test_the_class_is_named_after_both():
    with pytest.raises(RayTaskError) as raised:
        ray.get(fail_with.remote(ValueError("no")))
    assert type(raised.value).__name__ == "RayTaskError(ValueError)"
    assert isinstance(raised.value, ValueError)


@shows("RayTaskError")
def test_the_text_contains_the_message_and_the_remote_traceback():
    @ray.remote(num_cpus=0)
    def outer():
        def a_function_in_the_traceback():
            raise ValueError("the message")
        a_function_in_the_traceback()

    with pytest.raises(ValueError) as raised:
        ray.get(outer.remote())
    assert "the message" in str(raised.value)
    assert "a_function_in_the_traceback" in str(raised.value)


@shows("RayTaskError")
def test_the_text_names_the_function():
    @ray.remote(num_cpus=0)
    def a_function_that_fails():
        raise ValueError

    with pytest.raises(ValueError) as raised:
        ray.get(a_function_that_fails.remote())
    assert "a_function_that_fails" in str(raised.value)


@shows("RayTaskError")
def test_the_text_names_class_and_method(echo):
    with pytest.raises(ValueError) as raised:
        ray.get(echo.fail.remote(ValueError("no")))
    assert "Echo.fail" in str(raised.value)


@shows("RayTaskError")
def test_a_failure_passes_through_a_chain_of_tasks():
    failed = fail_with.remote(KeyError("origin"))
    with pytest.raises(KeyError) as raised:
        ray.get(identity.remote(identity.remote(failed)))
    assert "origin" in str(raised.value)


@shows("RayTaskError")
def test_a_failure_of_a_nested_task_arrives():
    @ray.remote(num_cpus=0)
    def outer():
        return ray.get(fail_with.remote(KeyError("nested")))

    with pytest.raises(KeyError):
        ray.get(outer.remote())


@shows("RayTaskError")
def test_a_task_catches_the_failure_of_another():
    @ray.remote(num_cpus=0)
    def outer():
        try:
            ray.get(fail_with.remote(KeyError("nested")))
        except KeyError:
            return "caught"

    assert ray.get(outer.remote()) == "caught"


@shows("RayTaskError")
def test_as_instanceof_cause_is_of_both_types():
    @ray.remote(num_cpus=0)
    def fail():
        raise ValueError("x")

    with pytest.raises(RayTaskError) as raised:
        ray.get(fail.remote())
    assert isinstance(raised.value.as_instanceof_cause(), ValueError)


@shows("RayTaskError")
def test_a_failure_can_be_pickled():
    with pytest.raises(ValueError) as raised:
        ray.get(fail_with.remote(ValueError("kept")))
    again = ray.cloudpickle.loads(ray.cloudpickle.dumps(raised.value))
    assert "kept" in str(again)
    assert isinstance(again, RayTaskError)


@shows("RayTaskError")
def test_the_local_traceback_shows_the_get():
    try:
        ray.get(fail_with.remote(ValueError("no")))
    except ValueError as error:
        assert "test_the_local_traceback_shows_the_get" in "".join(traceback.format_tb(error.__traceback__))


@shows("RayTaskError")
def test_a_failed_method_leaves_its_actor_alive(echo):
    with pytest.raises(RuntimeError):
        ray.get(echo.fail.remote(RuntimeError("no")))
    assert ray.get(echo.echo.remote("alive")) == "alive"


@shows("RayTaskError")
def test_get_raises_the_failure_each_time():
    failed = fail_with.remote(ValueError("again"))
    for _ in range(3):
        with pytest.raises(ValueError):
            ray.get(failed)


@shows("RayTaskError")
def test_an_exception_that_is_returned_is_a_value(echo):
    returned = ray.get(echo.echo.remote(ValueError("just a value")))
    assert type(returned) is ValueError and returned.args == ("just a value",)


@refuses("RayTaskError")
def test_another_type_does_not_catch_it():
    with pytest.raises(ValueError):
        try:
            ray.get(fail_with.remote(ValueError("no")))
        except KeyError:
            pytest.fail("a KeyError was not raised")


@refuses("RayTaskError")
def test_system_exit_in_a_task_is_a_worker_crash():
    @ray.remote(num_cpus=0, max_retries=0)
    def leave():
        raise SystemExit(1)

    with pytest.raises(WorkerCrashedError):
        ray.get(leave.remote(), timeout=60)


@shows("ActorDiedError")
def test_an_actor_that_exits_dies():
    counter = Counter.remote()
    with pytest.raises(ActorDiedError):
        ray.get(counter.exit.remote(), timeout=60)


@shows("ActorDiedError")
def test_a_killed_process_is_a_dead_actor():
    echo = Echo.remote()
    os.kill(ray.get(echo.pid.remote()), signal.SIGKILL)
    with pytest.raises(ActorDiedError):
        for _ in range(100):
            ray.get(echo.sleep.remote(0.1), timeout=60)


@shows("ActorDiedError")
def test_calls_after_the_death_fail_too():
    counter = Counter.remote()
    with pytest.raises(ActorDiedError):
        ray.get(counter.exit.remote(), timeout=60)
    for _ in range(2):
        with pytest.raises(ActorDiedError):
            ray.get(counter.value.remote(), timeout=60)


@shows("ActorDiedError")
def test_calls_that_wait_fail_with_the_death():
    counter = Counter.remote()
    refs = [counter.exit.remote(), counter.value.remote(), counter.value.remote()]
    for ref in refs:
        with pytest.raises(ActorDiedError):
            ray.get(ref, timeout=60)


@shows("ActorDiedError")
def test_results_from_before_the_death_stay():
    counter = Counter.remote(5)
    before = counter.value.remote()
    assert ray.get(before) == 5
    with pytest.raises(ActorDiedError):
        ray.get(counter.exit.remote(), timeout=60)
    assert ray.get(before) == 5


@shows("ActorDiedError")
def test_a_death_names_the_class():
    counter = Counter.remote()
    with pytest.raises(ActorDiedError, match="Counter"):
        ray.get(counter.exit.remote(), timeout=60)


@shows("ActorDiedError")
def test_a_death_is_caught_as_ray_actor_error_and_not_as_task_error():
    counter = Counter.remote()
    with pytest.raises(RayActorError) as raised:
        ray.get(counter.exit.remote(), timeout=60)
    assert not isinstance(raised.value, RayTaskError)


@shows("ActorDiedError")
def test_a_death_tells_the_id_of_the_actor():
    counter = Counter.remote()
    with pytest.raises(ActorDiedError) as raised:
        ray.get(counter.exit.remote(), timeout=60)
    assert raised.value.actor_id == counter._actor_id.hex()


@shows("ActorDiedError")
def test_a_failed_constructor_tells_so():
    @ray.remote(num_cpus=0)
    class Broken:
        def __init__(self):
            raise CustomError(6)

        def ready(self):
            pass

    with pytest.raises(ActorDiedError, match="custom error 6") as raised:
        ray.get(Broken.remote().ready.remote(), timeout=60)
    assert raised.value.actor_init_failed


@refuses("ActorDiedError")
def test_a_dead_actor_as_an_argument_raises_where_it_is_called():
    counter = Counter.remote()
    ray.kill(counter)

    @ray.remote(num_cpus=0)
    def call(handle):
        return ray.get(handle.value.remote(), timeout=60)

    def died():
        try:
            ray.get(call.remote(counter), timeout=60)
        except RayActorError as error:
            return error
        return None

    assert isinstance(eventually(died), ActorDiedError)


@refuses("ActorDiedError")
def test_a_failed_reference_in_a_constructor_makes_the_actor_die():
    counter = Counter.remote(fail_with.remote(ValueError("argument")))
    with pytest.raises(ActorDiedError):
        ray.get(counter.value.remote(), timeout=60)


@shows("tree of exceptions")
@pytest.mark.parametrize("child, parent", [
    ("RayTaskError", "RayError"), ("RayActorError", "RayError"), ("ActorDiedError", "RayActorError"),
    ("ActorUnavailableError", "RayActorError"), ("GetTimeoutError", "RayError"), ("TaskCancelledError", "RayError"),
    ("WorkerCrashedError", "RayError"), ("ObjectLostError", "RayError"), ("OwnerDiedError", "ObjectLostError"),
    ("ObjectFetchTimedOutError", "ObjectLostError"), ("ObjectStoreFullError", "RayError"),
    ("NodeDiedError", "RayError"), ("OutOfMemoryError", "RayError"), ("RaySystemError", "RayError"),
    ("RuntimeEnvSetupError", "RayError"),
    ("LocalRayletDiedError", "RayError"), ("RpcError", "RayError"), ("ActorUnschedulableError", "RayError"),
    ("TaskUnschedulableError", "RayError"), ("PendingCallsLimitExceeded", "RayError"),
    ("ActorAlreadyExistsError", "RayError"), ("ObjectFreedError", "ObjectLostError"),
])
def test_a_class_of_exceptions_has_its_parent(child, parent):
    assert issubclass(getattr(exceptions, child), getattr(exceptions, parent))


@shows("tree of exceptions")
def test_exceptions_are_also_of_python_types():
    assert issubclass(GetTimeoutError, TimeoutError)
    assert issubclass(exceptions.ActorAlreadyExistsError, ValueError)


@shows("tree of exceptions")
def test_ray_error_is_an_exception_and_catches_no_python_error():
    assert issubclass(RayError, Exception)
    assert not issubclass(ValueError, RayError)


@shows("tree of exceptions")
def test_an_unavailable_actor_is_not_a_dead_one():
    assert not issubclass(ActorUnavailableError, ActorDiedError)
    assert not issubclass(TaskCancelledError, RayTaskError)


@refuses("tree of exceptions")
def test_an_unknown_exception_is_an_attribute_error():
    with pytest.raises(AttributeError):
        exceptions.NoSuchError
