# SPDX-License-Identifier: Apache-2.0
"""Remote functions: ray.remote on functions, .options, .remote, several results, retries."""
import functools
import os
import time

import numpy as np
import pytest
import ray
from ray.exceptions import RayTaskError, WorkerCrashedError

from suite import CustomError, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@ray.remote(num_cpus=0)
def add(first, second=10):
    return first + second


@ray.remote(num_cpus=0)
def collect(*positional, **named):
    return positional, named


@ray.remote(num_cpus=0)
def numbers(count):
    return list(range(count))


class Attempts:
    """Counts in a file, since the memory of a worker does not survive a retry."""

    def __init__(self, folder):
        self.path = str(folder / "attempts")

    def count_one(self):
        with open(self.path, "a", encoding="ascii") as file:
            file.write("x")
        return self.made()

    def made(self):
        return os.path.getsize(self.path) if os.path.exists(self.path) else 0


@shows("remote function")
def test_a_function_runs_in_another_process():
    @ray.remote(num_cpus=0)
    def pid():
        return os.getpid()

    assert ray.get(pid.remote()) != os.getpid()


@shows("remote function")
def test_positional_and_named_arguments_arrive():
    assert ray.get(collect.remote(1, "two", three=3)) == ((1, "two"), {"three": 3})


@shows("remote function")
def test_default_values_of_arguments_hold():
    assert ray.get(add.remote(1)) == 11
    assert ray.get(add.remote(1, 2)) == 3
    assert ray.get(add.remote(1, second=4)) == 5


@shows("remote function")
def test_a_function_without_return_gives_none():
    @ray.remote(num_cpus=0)
    def nothing():
        pass

    assert ray.get(nothing.remote()) is None


@shows("remote function")
def test_decorator_without_parentheses_works():
    @ray.remote
    def answer():
        return 42

    assert ray.get(answer.remote()) == 42


@shows("remote function")
def test_remote_wraps_a_function_that_exists():
    def double(number):
        return 2 * number

    assert ray.get(ray.remote(double).remote(4)) == 8
    assert double(4) == 8


@shows("remote function")
def test_remote_with_options_wraps_a_function_that_exists():
    def double(number):
        return 2 * number

    assert ray.get(ray.remote(num_cpus=0)(double).remote(4)) == 8


@shows("remote function")
def test_remote_wraps_a_lambda():
    assert ray.get(ray.remote(lambda number: number + 1).remote(1)) == 2


@shows("remote function")
def test_a_function_sees_variables_around_it():
    offset = 100

    @ray.remote(num_cpus=0)
    def shifted(number):
        return number + offset

    assert ray.get(shifted.remote(1)) == 101


@shows("remote function")
def test_a_function_calls_functions_of_its_module():
    @ray.remote(num_cpus=0)
    def outer(number):
        return ray.get(add.remote(number, 1))

    assert ray.get(outer.remote(1)) == 2


@shows("remote function")
def test_a_function_may_call_itself():
    @ray.remote(num_cpus=0)
    def factorial(number):
        return 1 if number <= 1 else number * ray.get(factorial.remote(number - 1))

    assert ray.get(factorial.remote(3)) == 6


@shows("remote function")
def test_a_function_is_passed_to_a_function():
    assert ray.get(identity.remote(abs)) is abs


@shows("remote function")
def test_a_remote_function_is_passed_to_a_task():
    @ray.remote(num_cpus=0)
    def apply(function, value):
        return ray.get(function.remote(value))

    assert ray.get(apply.remote(add, 5)) == 15


@shows("remote function")
def test_the_function_itself_is_reachable():
    assert add._function(1, 2) == 3


@shows("remote function")
def test_arguments_are_copies():
    values = [1, 2]

    @ray.remote(num_cpus=0)
    def extend(items):
        items.append(3)
        return items

    assert ray.get(extend.remote(values)) == [1, 2, 3]
    assert values == [1, 2]


@shows("remote function")
def test_large_arguments_and_results_arrive():
    array = np.arange(1_000_000)
    assert np.array_equal(ray.get(identity.remote(array)), array)


@shows("remote function")
def test_a_hundred_calls_give_a_hundred_results():
    assert ray.get([add.remote(number, 0) for number in range(100)]) == list(range(100))


@shows("remote function")
def test_tasks_run_at_the_same_time(gate):
    """The first task ends only after the second has run."""
    @ray.remote(num_cpus=0)
    def wait_for(refs):
        return ray.get(refs[0])

    first = wait_for.remote([gate.wait.remote("first")])

    @ray.remote(num_cpus=0)
    def open_it(handle):
        ray.get(handle.open.remote())
        return "second"

    assert ray.get(open_it.remote(gate)) == "second"
    assert ray.get(first) == "first"


@shows("remote function")
def test_a_decorated_function_with_wraps_works():
    def twice(function):
        @functools.wraps(function)
        def both(*arguments):
            return [function(*arguments), function(*arguments)]
        return both

    @ray.remote(num_cpus=0)
    @twice
    def hello(name):
        return f"hello {name}"

    assert ray.get(hello.remote("you")) == ["hello you", "hello you"]


@refuses("remote function")
def test_a_remote_function_cannot_be_called_directly():
    with pytest.raises(TypeError):
        add(1, 2)


@refuses("remote function")
def test_too_few_arguments_are_a_type_error_at_once():
    with pytest.raises(TypeError):
        add.remote()


@refuses("remote function")
def test_too_many_arguments_are_a_type_error_at_once():
    with pytest.raises(TypeError):
        add.remote(1, 2, 3)


@refuses("remote function")
def test_an_unknown_named_argument_is_a_type_error_at_once():
    with pytest.raises(TypeError):
        add.remote(1, third=3)


@refuses("remote function")
@pytest.mark.parametrize("wrong", [1, "text", None, [1]], ids=repr)
def test_remote_of_something_else_is_an_assertion_error(wrong):
    with pytest.raises(AssertionError):
        ray.remote(wrong)


@refuses("remote function")
def test_an_argument_that_cannot_be_pickled_is_a_type_error():
    def endless():
        yield 1

    with pytest.raises(TypeError):
        identity.remote(endless())


@refuses("remote function")
def test_a_result_that_cannot_be_pickled_is_a_type_error():
    @ray.remote(num_cpus=0)
    def lock():
        import threading
        return threading.Lock()

    with pytest.raises(TypeError):
        ray.get(lock.remote())


@refuses("remote function")
def test_a_coroutine_function_cannot_be_remote():
    with pytest.raises(ValueError):
        @ray.remote
        async def later():
            pass

        later.remote()


@shows("function options")
def test_options_hold_for_one_use_only():
    @ray.remote(num_cpus=0, num_returns=1)
    def pair():
        return 1, 2

    first, second = pair.options(num_returns=2).remote()
    assert ray.get([first, second]) == [1, 2]
    assert ray.get(pair.remote()) == (1, 2)


@shows("function options")
def test_options_may_be_kept_and_used_again():
    free = numbers.options(num_cpus=0, name="free")
    assert ray.get([free.remote(1), free.remote(2)]) == [[0], [0, 1]]


@shows("function options")
def test_options_without_arguments_change_nothing():
    assert ray.get(add.options().remote(1, 1)) == 2


@shows("function options")
def test_a_task_holds_its_resources_while_it_runs():
    @ray.remote(num_cpus=0, num_gpus=1, resources={"widget": 1})
    def assigned():
        return ray.get_runtime_context().get_assigned_resources()

    held = ray.get(assigned.remote())
    assert held["GPU"] == 1 and held["widget"] == 1


@shows("function options")
def test_options_override_the_decorator():
    @ray.remote(num_cpus=0, num_gpus=1)
    def gpus():
        return len(ray.get_gpu_ids())

    assert ray.get(gpus.remote()) == 1
    assert ray.get(gpus.options(num_gpus=2).remote()) == 2
    assert ray.get(gpus.options(num_gpus=0).remote()) == 0


@shows("function options")
def test_a_task_waits_for_resources_that_another_holds(gate):
    @ray.remote(num_cpus=0, resources={"widget": 2})
    def hold(refs):
        return ray.get(refs[0])

    first = hold.remote([gate.wait.remote()])
    while ray.available_resources().get("widget"):
        time.sleep(0.05)
    second = hold.remote([ray.put("second")])
    assert ray.wait([second], timeout=0.3) == ([], [second])
    gate.open.remote()
    assert ray.get([first, second]) == ["open", "second"]


@refuses("function options")
def test_an_unknown_option_is_a_value_error():
    with pytest.raises(ValueError):
        add.options(number_of_cpus=1)


@refuses("function options")
def test_an_unknown_option_of_the_decorator_is_a_value_error():
    with pytest.raises(ValueError):
        ray.remote(number_of_cpus=1)(lambda: None)


@refuses("function options")
@pytest.mark.parametrize("options", [
    {"num_cpus": -1}, {"num_gpus": -1}, {"num_gpus": 1.5}, {"resources": {"CPU": 1}}, {"resources": {"widget": -1}},
    {"max_retries": -2}, {"num_returns": -1}, {"num_cpus": 0.00001},
    {"max_restarts": 1}, {"max_concurrency": 2}, {"lifetime": "detached"},
], ids=str)
def test_an_impossible_option_of_a_function_is_a_value_error(options):
    with pytest.raises(ValueError):
        add.options(**options).remote(1)


@refuses("function options")
@pytest.mark.parametrize("options", [
    {"num_cpus": "1"}, {"resources": ["widget"]}, {"max_retries": 1.5}, {"runtime_env": 1}, {"name": 1},
    {"scheduling_strategy": 1},
], ids=str)
def test_an_option_of_a_wrong_type_is_a_type_error(options):
    with pytest.raises(TypeError):
        add.options(**options).remote(1)


@refuses("function options")
def test_remote_takes_no_positional_option():
    with pytest.raises(AssertionError):
        ray.remote(1, 2)


@shows("num_returns")
def test_a_function_may_have_many_results():
    @ray.remote(num_cpus=0, num_returns=200)
    def many():
        return [[number, ray.put(number)] if number % 2 else number for number in range(200)]

    refs = many.remote()
    assert len(refs) == 200
    values = ray.get(refs)
    assert values[::2] == list(range(0, 200, 2))
    assert [value[0] for value in values[1::2]] == ray.get([value[1] for value in values[1::2]])


@shows("num_returns")
def test_several_results_have_a_reference_each():
    @ray.remote(num_cpus=0, num_returns=3)
    def three():
        return 1, "two", [3]

    refs = three.remote()
    assert isinstance(refs, list) and len(refs) == 3
    assert ray.get(refs) == [1, "two", [3]]


@shows("num_returns")
def test_several_results_may_be_a_list():
    @ray.remote(num_cpus=0, num_returns=2)
    def pair():
        return [1, 2]

    assert ray.get(pair.remote()) == [1, 2]


@shows("num_returns")
def test_no_results_are_none():
    @ray.remote(num_cpus=0, num_returns=0)
    def silent():
        return None

    assert silent.remote() is None


@shows("num_returns")
def test_the_results_of_a_failure_all_raise():
    @ray.remote(num_cpus=0, num_returns=2)
    def fail():
        raise CustomError(1)

    for ref in fail.remote():
        with pytest.raises(CustomError):
            ray.get(ref)


@refuses("num_returns")
@pytest.mark.parametrize("results", [(1,), (1, 2, 3)], ids=len)
def test_another_number_of_results_is_a_value_error(results):
    @ray.remote(num_cpus=0, num_returns=2)
    def wrong():
        return results

    with pytest.raises(ValueError):
        ray.get(wrong.remote()[0])


@refuses("num_returns")
def test_one_value_for_two_results_is_an_error_of_the_task():
    @ray.remote(num_cpus=0, num_returns=2)
    def wrong():
        return 5

    with pytest.raises(RayTaskError):
        ray.get(wrong.remote()[1])


@shows("retry_exceptions")
def test_a_failing_function_is_not_run_again_by_default(tmp_path):
    attempts = Attempts(tmp_path)

    @ray.remote(num_cpus=0)
    def fail():
        attempts.count_one()
        raise ValueError("no")

    with pytest.raises(ValueError):
        ray.get(fail.remote())
    assert attempts.made() == 1


@shows("retry_exceptions")
def test_retry_exceptions_runs_a_failing_function_again(tmp_path):
    attempts = Attempts(tmp_path)

    @ray.remote(num_cpus=0, max_retries=3, retry_exceptions=True)
    def third_time():
        if attempts.count_one() < 3:
            raise ValueError("not yet")
        return attempts.made()

    assert ray.get(third_time.remote()) == 3


@shows("retry_exceptions")
def test_retries_end_with_the_failure(tmp_path):
    attempts = Attempts(tmp_path)

    @ray.remote(num_cpus=0, max_retries=2, retry_exceptions=True)
    def fail():
        attempts.count_one()
        raise ValueError("no")

    with pytest.raises(ValueError):
        ray.get(fail.remote())
    assert attempts.made() == 3


@shows("retry_exceptions")
def test_only_the_named_exceptions_are_retried(tmp_path):
    attempts = Attempts(tmp_path)

    @ray.remote(num_cpus=0, max_retries=3, retry_exceptions=[KeyError])
    def fail():
        attempts.count_one()
        raise ValueError("another")

    with pytest.raises(ValueError):
        ray.get(fail.remote())
    assert attempts.made() == 1


@refuses("retry_exceptions")
def test_something_else_than_exceptions_is_a_value_error():
    with pytest.raises(ValueError):
        add.options(retry_exceptions=["ValueError"]).remote(1)


@shows("max_retries")
def test_a_function_whose_process_ends_is_run_again(tmp_path):
    attempts = Attempts(tmp_path)

    @ray.remote(num_cpus=0, max_retries=2)
    def die_once():
        if attempts.count_one() == 1:
            os._exit(1)
        return "survived"

    assert ray.get(die_once.remote(), timeout=60) == "survived"
    assert attempts.made() == 2


@shows("max_retries")
def test_a_function_without_retries_fails_with_its_process():
    @ray.remote(num_cpus=0, max_retries=0)
    def die():
        os._exit(1)

    with pytest.raises(WorkerCrashedError):
        ray.get(die.remote(), timeout=60)


@shows("max_retries")
def test_each_retry_runs_the_function_once(tmp_path):
    attempts = Attempts(tmp_path)

    @ray.remote(num_cpus=0, max_retries=1)
    def die():
        attempts.count_one()
        os._exit(1)

    with pytest.raises(WorkerCrashedError):
        ray.get(die.remote(), timeout=60)
    assert attempts.made() == 2


@refuses("max_retries")
def test_fewer_than_minus_one_retries_are_a_value_error():
    with pytest.raises(ValueError):
        add.options(max_retries=-2)


@shows("remote function")
def test_a_task_returns_at_once(gate):
    begun = time.monotonic()
    identity.remote(gate.wait.remote())
    assert time.monotonic() - begun < 10
