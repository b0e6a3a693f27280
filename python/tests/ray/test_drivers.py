# SPDX-License-Identifier: Apache-2.0
"""Several drivers at one cluster: addresses, RAY_ADDRESS, name spaces, detached actors, and output of workers."""
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import ray
from ray.util.placement_group import get_placement_group, placement_group, placement_group_table, remove_placement_group

from suite import Counter, PATIENCE, eventually, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")

CONNECT = """
import os, sys, time
import ray
ray.init(address=os.environ["SUITE_ADDRESS"], namespace="suite", log_to_driver=False)
"""

COUNTER = """
@ray.remote(num_cpus=0)
class Counter:
    def __init__(self):
        self.number = 0
    def add(self):
        self.number += 1
        return self.number
"""


def run_driver(*parts, status=0, **variables):
    """Runs a script as another driver; returns the lines of its output."""
    script = "\n".join(textwrap.dedent(part) for part in parts)
    environment = {**os.environ, "SUITE_ADDRESS": ray.get_runtime_context().gcs_address, **variables}
    done = subprocess.run([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=4 * PATIENCE, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout.splitlines()


def name_is_free(name):
    """Tell whether no actor has the name. Ray asserts for a moment that it knows the class, while a driver ends."""
    try:
        ray.get_actor(name)
    except ValueError:
        return True
    except AssertionError:
        pass
    return False


@shows("ray.init address")
def test_a_driver_connects_to_an_address():
    assert run_driver(CONNECT, """
    print(ray.cluster_resources()["widget"])
    """) == ["2.0"]


@shows("ray.init address")
def test_a_driver_runs_tasks_at_the_cluster():
    assert run_driver(CONNECT, """
    @ray.remote(num_cpus=0)
    def double(number):
        return 2 * number
    print(ray.get([double.remote(1), double.remote(2)]))
    """) == ["[2, 4]"]


@shows("ray.init address")
def test_auto_finds_the_cluster_of_the_variable():
    address = ray.get_runtime_context().gcs_address
    assert run_driver("""
    import ray
    ray.init(address="auto", log_to_driver=False)
    print(ray.cluster_resources()["widget"])
    """, RAY_ADDRESS=address) == ["2.0"]


@shows("ray.init address")
def test_two_drivers_are_two_jobs_on_the_same_node():
    job, node = run_driver(CONNECT, """
    print(ray.get_runtime_context().get_job_id())
    print(ray.get_runtime_context().get_node_id())
    """)
    context = ray.get_runtime_context()
    assert job != context.get_job_id() and node == context.get_node_id()


@refuses("ray.init address")
@pytest.mark.parametrize("keywords", ["num_cpus=1", "num_gpus=1", "resources={'a': 1}", "object_store_memory=10**8"])
def test_a_driver_that_connects_cannot_give_resources(keywords):
    assert run_driver(f"""
    import os
    import ray
    try:
        ray.init(address=os.environ["SUITE_ADDRESS"], {keywords}, log_to_driver=False)
    except ValueError:
        print("refused")
    """) == ["refused"]


@shows("RAY_ADDRESS")
def test_init_without_address_uses_the_variable():
    address = ray.get_runtime_context().gcs_address
    assert run_driver("""
    import ray
    ray.init(log_to_driver=False)
    print(ray.cluster_resources()["widget"])
    """, RAY_ADDRESS=address) == ["2.0"]


@shows("RAY_ADDRESS")
def test_the_implicit_start_uses_the_variable():
    address = ray.get_runtime_context().gcs_address
    assert run_driver("""
    import ray
    ray.put(1)
    print(ray.cluster_resources()["widget"])
    """, RAY_ADDRESS=address) == ["2.0"]


@shows("RAY_ADDRESS")
def test_the_variable_does_not_change_with_the_connection():
    address = ray.get_runtime_context().gcs_address
    assert run_driver("""
    import os
    import ray
    ray.init(log_to_driver=False)
    print(os.environ["RAY_ADDRESS"] == ray.get_runtime_context().gcs_address)
    """, RAY_ADDRESS=address) == ["True"]


@refuses("RAY_ADDRESS")
def test_with_the_variable_resources_cannot_be_given():
    address = ray.get_runtime_context().gcs_address
    assert run_driver("""
    import ray
    try:
        ray.init(num_cpus=1, log_to_driver=False)
    except ValueError:
        print("refused")
    """, RAY_ADDRESS=address) == ["refused"]


@shows("detached actor")
def test_a_detached_actor_outlives_its_driver():
    run_driver(CONNECT, COUNTER, """
    counter = Counter.options(name="outlives", lifetime="detached").remote()
    print(ray.get(counter.add.remote()))
    """)
    counter = ray.get_actor("outlives")
    assert ray.get(counter.add.remote()) == 2
    ray.kill(counter)


@shows("detached actor")
def test_another_driver_finds_an_actor_of_this_one():
    counter = Counter.options(name="of this driver").remote(10)
    assert run_driver(CONNECT, """
    print(ray.get(ray.get_actor("of this driver").add.remote()))
    """) == ["11"]
    assert ray.get(counter.value.remote()) == 11


@shows("detached actor")
def test_an_actor_that_is_not_detached_ends_with_its_driver():
    run_driver(CONNECT, COUNTER, """
    counter = Counter.options(name="ends").remote()
    print(ray.get(counter.add.remote()))
    """)
    eventually(lambda: name_is_free("ends"))


@shows("detached actor")
def test_an_actor_ends_with_a_driver_that_crashes():
    run_driver(CONNECT, COUNTER, """
    counter = Counter.options(name="crashes").remote()
    ray.get(counter.add.remote())
    os._exit(7)
    """, status=7)
    eventually(lambda: name_is_free("crashes"))


@refuses("detached actor")
def test_a_name_in_another_name_space_is_not_found():
    counter = Counter.options(name="hidden").remote()
    ray.get(counter.value.remote())
    assert run_driver("""
    import os
    import ray
    ray.init(address=os.environ["SUITE_ADDRESS"], log_to_driver=False)
    try:
        ray.get_actor("hidden")
    except ValueError:
        print(ray.get(ray.get_actor("hidden", namespace="suite").value.remote()))
    """) == ["0"]


@refuses("detached actor")
def test_a_detached_actor_keeps_its_name_from_other_drivers():
    counter = Counter.options(name="kept name", lifetime="detached").remote()
    ray.get(counter.value.remote())
    assert run_driver(CONNECT, COUNTER, """
    try:
        Counter.options(name="kept name").remote()
    except ValueError:
        print("taken")
    """) == ["taken"]
    ray.kill(counter)


@shows("groups of other drivers")
def test_a_detached_group_outlives_its_driver():
    run_driver(CONNECT, """
    group = ray.util.placement_group([{"CPU": 1}], name="outlives", lifetime="detached")
    print(group.wait(60))
    """)
    group = get_placement_group("outlives")
    assert placement_group_table(group)["state"] == "CREATED"
    remove_placement_group(group)


@shows("groups of other drivers")
def test_a_group_ends_with_its_driver():
    identity, = run_driver(CONNECT, """
    group = ray.util.placement_group([{"CPU": 1}])
    assert group.wait(60)
    print(group.id.hex())
    """)
    eventually(lambda: placement_group_table()[identity]["state"] == "REMOVED")


@shows("groups of other drivers")
def test_another_driver_uses_a_group_by_name():
    group = placement_group([{"CPU": 1}], name="of the suite")
    assert group.wait(60)
    assert run_driver(CONNECT, """
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    group = ray.util.get_placement_group("of the suite")
    @ray.remote(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0))
    def current():
        return ray.util.get_current_placement_group() == group
    print(ray.get(current.remote()))
    """) == ["True"]
    remove_placement_group(group)


@refuses("groups of other drivers")
def test_a_group_of_another_name_space_is_not_found():
    group = placement_group([{"CPU": 1}], name="hidden group")
    assert group.wait(60)
    assert run_driver("""
    import os
    import ray
    ray.init(address=os.environ["SUITE_ADDRESS"], log_to_driver=False)
    try:
        ray.util.get_placement_group("hidden group")
    except ValueError:
        print("not found")
    """) == ["not found"]
    remove_placement_group(group)


def output_of_driver(script, wanted):
    """Runs a driver that ends when it reads a line; returns its output up to the first line with the wanted text."""
    environment = {**os.environ, "SUITE_ADDRESS": ray.get_runtime_context().gcs_address, "RAY_COLOR_PREFIX": "0"}
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=environment, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as driver:
        watchdog = threading.Timer(4 * PATIENCE, driver.kill)
        watchdog.start()
        lines = []
        for line in driver.stdout:
            lines.append(line.rstrip("\n"))
            if wanted in line:
                break
        driver.stdin.close()
        driver.stdout.read()
        watchdog.cancel()
    return lines


@shows("log_to_driver")
def test_output_of_an_actor_reaches_the_driver_with_class_and_pid():
    lines = output_of_driver("""
    import os, sys
    import ray
    ray.init(address=os.environ["SUITE_ADDRESS"])
    @ray.remote(num_cpus=0)
    class Speaker:
        def speak(self):
            print("hello from", os.getpid())
    speaker = Speaker.remote()
    ray.get(speaker.speak.remote())
    sys.stdin.readline()
    """, "hello from")
    prefix, _, pid = lines[-1].partition(" hello from ")
    assert prefix == f"(Speaker pid={pid})"


@shows("log_to_driver")
def test_output_of_a_task_reaches_the_driver_with_its_name():
    lines = output_of_driver("""
    import os, sys
    import ray
    ray.init(address=os.environ["SUITE_ADDRESS"])
    @ray.remote(num_cpus=0)
    def speak():
        print("hello from", os.getpid())
    ray.get(speak.remote())
    sys.stdin.readline()
    """, "hello from")
    prefix, _, pid = lines[-1].partition(" hello from ")
    assert prefix == f"(speak pid={pid})"


@shows("log_to_driver")
def test_output_of_an_actor_can_be_kept_from_the_driver():
    assert run_driver(CONNECT, """
    @ray.remote(num_cpus=0)
    def speak():
        print("hello from the task")
    ray.get(speak.remote())
    time.sleep(3)
    """) == []


@refuses("log_to_driver")
def test_a_driver_that_fails_has_an_exit_status():
    run_driver(CONNECT, """
    @ray.remote(num_cpus=0)
    def fail():
        raise ValueError("no")
    ray.get(fail.remote())
    """, status=1)
