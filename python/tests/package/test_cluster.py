# SPDX-License-Identifier: Apache-2.0
"""Functions, placement groups, resources, and what lies on top of actors."""
import os
import time

import pytest

from tandem import _tandem, ray
from tandem.ray import exceptions
from tandem.ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from tandem.ray.util.queue import Empty, Full, Queue
from tandem.ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy


@ray.remote
def double(value):
    return 2 * value


@ray.remote
class Actor:
    def square(self, value):
        return value * value

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def group(self):
        return ray.util.get_current_placement_group() is not None


def test_functions_run_in_workers():
    assert ray.get([double.remote(index) for index in range(30)]) == [2 * index for index in range(30)]
    assert ray.get(double.remote(double.remote(1))) == 4
    with pytest.raises(TypeError):
        double(1)
    with pytest.raises(TypeError):
        double.remote()


def test_functions_call_functions():
    @ray.remote
    def total(count):
        return sum(ray.get([double.remote(index) for index in range(count)]))

    assert ray.get(total.remote(5)) == 20


def test_function_options():
    @ray.remote(num_returns=2)
    def pair():
        return 1, 2

    @ray.remote
    def items():
        yield from "abc"

    assert ray.get(pair.remote()) == [1, 2]
    assert ray.get(pair.options(num_returns=1).remote()) == (1, 2)
    assert [ray.get(ref) for ref in items.remote()] == ["a", "b", "c"]
    with pytest.raises(ValueError):
        double.options(max_restarts=1)


def test_exceptions_are_retried(tmp_path):
    @ray.remote(max_retries=2, retry_exceptions=[ValueError])
    def fail_twice(path):
        path.write_text(path.read_text() + "x" if path.exists() else "x")
        if len(path.read_text()) < 3:
            raise ValueError
        return path.read_text()

    assert ray.get(fail_twice.remote(tmp_path / "count")) == "xxx"


def test_cancelled_function_is_interrupted(tmp_path):
    @ray.remote
    def sleep(path):
        path.write_text("began")
        try:
            time.sleep(1000)
        except KeyboardInterrupt:
            path.write_text("interrupted")

    path = tmp_path / "mark"
    ref = sleep.remote(path)
    while not path.exists():
        time.sleep(0.01)
    ray.cancel(ref)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(ref)
    for _ in range(1000):
        if path.read_text() == "interrupted":
            break
        time.sleep(0.01)
    assert path.read_text() == "interrupted"
    assert ray.get([double.remote(index) for index in range(8)]) == [2 * index for index in range(8)]


def test_generator_is_cancelled():
    @ray.remote
    def count():
        yield from range(1000000)

    items = count.remote()
    assert ray.get(next(items)) == 0
    ray.cancel(items)
    with pytest.raises(exceptions.TaskCancelledError):
        ray.get(next(items))
    with pytest.raises(StopIteration):
        next(items)


def test_crash_of_a_worker():
    @ray.remote(max_retries=0)
    def crash():
        os._exit(1)

    with pytest.raises(exceptions.WorkerCrashedError):
        ray.get(crash.remote())


def test_function_is_retried_after_a_crash(tmp_path):
    @ray.remote(max_retries=2)
    def crash_once(path):
        if not path.exists():
            path.write_text("was here")
            os._exit(1)
        return "retried"

    assert ray.get(crash_once.remote(tmp_path / "mark")) == "retried"


def test_resources():
    assert ray.cluster_resources()["CPU"] == 4
    actor = Actor.options(num_cpus=3).remote()
    ray.get(actor.square.remote(1))
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU") != 1:  # Idle workers of functions end after a moment.
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (node,) = ray.nodes()
    assert node["Alive"] and node["NodeID"] == ray.get(actor.node.remote())


def test_placement_group():
    group = placement_group([{"CPU": 1}, {"CPU": 2}], strategy="PACK")
    ray.get(group.ready())
    assert group.wait(1) and group.bundle_count == 2 and group.bundle_specs == [{"CPU": 1}, {"CPU": 2}]
    actor = Actor.options(num_cpus=2, scheduling_strategy=PlacementGroupSchedulingStrategy(group, 1)).remote()
    assert ray.get(actor.square.remote(3)) == 9 and ray.get(actor.group.remote())
    assert placement_group_table(group)["state"] == "CREATED"
    remove_placement_group(group)
    with pytest.raises(exceptions.RayActorError):
        ray.get(actor.square.remote(3))
    assert placement_group_table(group)["state"] == "REMOVED"


def test_placement_group_that_does_not_fit_is_pending():
    with pytest.warns(UserWarning, match="waits for nodes"):
        group = placement_group([{"CPU": 1000}])
    ready = group.ready()
    assert not group.wait(0.2) and ray.wait([ready], timeout=0.1) == ([], [ready])
    assert placement_group_table(group)["state"] == "PENDING"
    (listed,) = [row for row in _tandem.list_groups() if row["id"] == group.id.hex()]
    assert "can never hold it" in listed["waits_for"] and listed["waited_ms"] >= 0 and listed["ticket"] >= 0
    remove_placement_group(group)
    with pytest.raises(exceptions.TaskPlacementGroupRemoved):
        ray.get(ready, timeout=60)
    for wrong in ([], [{}], [{"CPU": 0}], "bundles"):
        with pytest.raises(ValueError):
            placement_group(wrong)
    with pytest.raises(ValueError):
        placement_group([{"CPU": 1}], strategy="FAR")


def test_node_affinity():
    node = ray.nodes()[0]["NodeID"]
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    assert ray.get(Actor.options(scheduling_strategy=strategy).remote().node.remote()) == node


def test_queue():
    queue = Queue(maxsize=2)
    queue.put(1)
    queue.put({"two": 2})
    with pytest.raises(Full):
        queue.put_nowait(3)
    with pytest.raises(Full):
        queue.put(3, timeout=0.05)
    assert (queue.qsize(), queue.full(), queue.get(), queue.get()) == (2, True, 1, {"two": 2})
    with pytest.raises(Empty):
        queue.get_nowait()
    with pytest.raises(Empty):
        queue.get(timeout=0.05)

    @ray.remote
    def produce(queue):
        queue.put("from a task")

    produce.remote(queue)
    assert queue.get(timeout=60) == "from a task"


def test_actor_pool():
    pool = ray.util.ActorPool([Actor.remote(), Actor.remote()])
    assert list(pool.map(lambda actor, value: actor.square.remote(value), range(6))) == [0, 1, 4, 9, 16, 25]
    assert sorted(pool.map_unordered(lambda actor, value: actor.square.remote(value), range(4))) == [0, 1, 4, 9]


def test_the_module_ray():
    @ray.remote(runtime_env={"env_vars": {"PYTHONPATH": _shim_path()}})
    class Importer:
        def names(self):
            import importlib.util
            import ray as plain
            from ray.util.queue import Queue as Found
            return plain.__name__, Found.__module__, importlib.util.find_spec("ray") is not None

    assert ray.get(Importer.remote().names.remote()) == ("tandem.ray", "tandem.ray.util.queue", True)


def _shim_path():
    """Return the module path of programs that import ray."""
    import tandem
    package = os.path.dirname(os.path.abspath(tandem.__file__))
    return os.pathsep.join((os.path.join(package, "shim"), os.path.dirname(package)))


def test_functions_hold_cpus_and_lend_them_while_they_wait():
    cpus = ray.cluster_resources()["CPU"]

    @ray.remote
    def outer():
        return ray.get(double.remote(3))

    assert ray.get([outer.remote() for _ in range(int(cpus) + 1)], timeout=60) == [6] * (int(cpus) + 1)
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU") != cpus:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_group_that_no_node_can_hold_waits():
    with pytest.warns(UserWarning, match="waits for nodes"):
        group = placement_group([{"CPU": 1000}])
    strategy = PlacementGroupSchedulingStrategy(group)
    actor = Actor.options(scheduling_strategy=strategy).remote()
    task = double.options(num_cpus=1, scheduling_strategy=strategy).remote(1)
    assert not group.wait(0.1)
    assert placement_group_table(group)["state"] == "PENDING"
    remove_placement_group(group)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(actor.node.remote(), timeout=30)
    with pytest.raises(exceptions.TaskPlacementGroupRemoved):
        ray.get(task, timeout=30)
    assert placement_group_table(group)["state"] == "REMOVED"


def test_labels_choose_the_node():
    node = ray.nodes()[0]
    assert node["Labels"]["ray.io/node-id"] == node["NodeID"]
    actor = Actor.options(label_selector={"ray.io/node-id": node["NodeID"]}).remote()
    assert ray.get(actor.node.remote()) == node["NodeID"]
    with pytest.raises(exceptions.ActorUnschedulableError):
        ray.get(Actor.options(label_selector={"zone": "nowhere"}).remote().node.remote())
    with pytest.raises(ValueError):
        Actor.options(label_selector={"zone": 5}).remote()
