# SPDX-License-Identifier: Apache-2.0
"""Nodes, resources, GPUs, the runtime context and scheduling strategies."""
import os

import pytest
import ray
from ray.exceptions import ActorUnschedulableError, TaskUnschedulableError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from suite import Echo, eventually, identity, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")

# The ID of a node that does not exist.
NOWHERE = "ab" * 28


@ray.remote(num_cpus=0)
class Where:
    def node(self):
        return ray.get_runtime_context().get_node_id()

    def gpu_ids(self):
        return ray.get_gpu_ids()

    def visible(self):
        return os.environ.get("CUDA_VISIBLE_DEVICES")

    def accelerators(self):
        return ray.get_runtime_context().get_accelerator_ids()

    def resources(self):
        return ray.get_runtime_context().get_assigned_resources()

    def omp_threads(self):
        return os.environ.get("OMP_NUM_THREADS")

    def identity(self):
        context = ray.get_runtime_context()
        return {"actor": context.get_actor_id(), "job": context.get_job_id(), "task": context.get_task_id(),
                "worker": context.get_worker_id(), "name": context.get_actor_name(), "space": context.namespace}

    def myself(self):
        return ray.get_runtime_context().current_actor

    def text(self):
        return "text"


def the_node():
    node, = (node for node in ray.nodes() if node["Alive"])
    return node


@pytest.fixture
def free():
    """Waits until the test may have all GPUs and CPUs, also after it."""
    def all_free():
        now = ray.available_resources()
        return now.get("GPU") == 4 and now.get("CPU") == 4

    eventually(all_free)
    yield
    eventually(all_free)


@shows("ray.nodes")
def test_nodes_has_one_node_that_is_alive():
    assert [node["Alive"] for node in ray.nodes()] == [True]


@shows("ray.nodes")
def test_a_node_tells_what_frameworks_read():
    node = the_node()
    assert {"NodeID", "Alive", "NodeManagerAddress", "NodeManagerHostname", "Resources", "Labels"} <= set(node)


@shows("ray.nodes")
def test_a_node_tells_its_resources():
    resources = the_node()["Resources"]
    assert resources["CPU"] == 4 and resources["GPU"] == 4 and resources["widget"] == 2
    assert resources["memory"] > 0 and resources["object_store_memory"] > 0


@shows("ray.nodes")
def test_the_id_of_a_node_is_hexadecimal():
    assert len(bytes.fromhex(the_node()["NodeID"])) > 0


@shows("ray.nodes")
def test_the_address_of_a_node_is_its_ip_address():
    assert the_node()["NodeManagerAddress"] == ray.util.get_node_ip_address()


@shows("ray.nodes")
def test_a_task_sees_the_same_nodes():
    @ray.remote(num_cpus=0)
    def ids():
        return [node["NodeID"] for node in ray.nodes()]

    assert ray.get(ids.remote()) == [the_node()["NodeID"]]


@refuses("ray.nodes")
def test_nodes_takes_no_argument():
    with pytest.raises(TypeError):
        ray.nodes("alive")


@shows("ray.cluster_resources")
def test_cluster_resources_are_those_of_the_node():
    total = ray.cluster_resources()
    assert (total["CPU"], total["GPU"], total["widget"]) == (4, 4, 2)


@shows("ray.cluster_resources")
def test_cluster_resources_do_not_change_with_use(free):
    actor = Echo.options(num_gpus=2).remote()
    ray.get(actor.echo.remote())
    assert ray.cluster_resources()["GPU"] == 4
    ray.kill(actor)


@shows("ray.cluster_resources")
def test_cluster_resources_are_numbers():
    assert all(isinstance(amount, float) for amount in ray.cluster_resources().values())


@shows("ray.cluster_resources")
def test_the_node_is_a_resource_by_its_address():
    assert ray.cluster_resources()["node:" + ray.util.get_node_ip_address()] == 1


@refuses("ray.cluster_resources")
def test_an_unknown_resource_is_a_key_error():
    with pytest.raises(KeyError):
        ray.cluster_resources()["no such resource"]


@refuses("ray.cluster_resources")
def test_cluster_resources_takes_no_argument():
    with pytest.raises(TypeError):
        ray.cluster_resources("CPU")


@shows("ray.available_resources")
def test_all_is_available_when_nothing_runs(free):
    now = ray.available_resources()
    assert (now["CPU"], now["GPU"], now["widget"]) == (4, 4, 2)


@shows("ray.available_resources")
def test_what_an_actor_holds_is_not_available(free):
    actor = Echo.options(num_cpus=1, num_gpus=0.5, resources={"widget": 1}).remote()
    ray.get(actor.echo.remote())
    eventually(lambda: ray.available_resources().get("GPU") == 3.5)
    now = ray.available_resources()
    assert now["CPU"] == 3 and now["widget"] == 1
    ray.kill(actor)


@shows("ray.available_resources")
def test_a_resource_that_is_used_up_is_zero_or_missing(free):
    actor = Echo.options(resources={"widget": 2}).remote()
    ray.get(actor.echo.remote())
    eventually(lambda: ray.available_resources().get("widget", 0) == 0)
    ray.kill(actor)
    eventually(lambda: ray.available_resources().get("widget", 0) == 2)


@refuses("ray.available_resources")
def test_available_resources_takes_no_argument():
    with pytest.raises(TypeError):
        ray.available_resources("GPU")


@shows("ray.get_gpu_ids")
def test_the_driver_has_no_gpus():
    assert ray.get_gpu_ids() == []


@shows("ray.get_gpu_ids")
def test_an_actor_without_gpus_has_no_ids():
    assert ray.get(Where.remote().gpu_ids.remote()) == []


@shows("ray.get_gpu_ids")
@pytest.mark.parametrize("count", [1, 2, 4])
def test_an_actor_has_as_many_ids_as_gpus(free, count):
    actor = Where.options(num_gpus=count).remote()
    ids = ray.get(actor.gpu_ids.remote())
    assert len(ids) == len(set(ids)) == count
    assert {int(gpu) for gpu in ids} <= {0, 1, 2, 3}
    ray.kill(actor)


@shows("ray.get_gpu_ids")
def test_ids_of_gpus_are_integers(free):
    actor = Where.options(num_gpus=1).remote()
    assert all(isinstance(gpu, int) for gpu in ray.get(actor.gpu_ids.remote()))
    ray.kill(actor)


@shows("ray.get_gpu_ids")
def test_whole_gpus_are_not_shared(free):
    actors = [Where.options(num_gpus=1).remote() for _ in range(4)]
    ids = ray.get([actor.gpu_ids.remote() for actor in actors])
    assert sorted(gpu for own in ids for gpu in own) == [0, 1, 2, 3]
    for actor in actors:
        ray.kill(actor)


@shows("ray.get_gpu_ids")
def test_parts_of_one_gpu_have_the_same_id(free):
    actors = [Where.options(num_gpus=0.5).remote() for _ in range(2)]
    first, second = ray.get([actor.gpu_ids.remote() for actor in actors])
    assert first == second and len(first) == 1
    for actor in actors:
        ray.kill(actor)


@shows("ray.get_gpu_ids")
def test_a_task_has_gpus(free):
    @ray.remote(num_cpus=0, num_gpus=1)
    def ids():
        return ray.get_gpu_ids()

    assert len(ray.get(ids.remote())) == 1


@shows("ray.get_gpu_ids")
def test_visible_devices_are_the_ids(free):
    actor = Where.options(num_gpus=2).remote()
    ids, visible = ray.get([actor.gpu_ids.remote(), actor.visible.remote()])
    assert sorted(visible.split(",")) == sorted(str(gpu) for gpu in ids)
    ray.kill(actor)


@shows("ray.get_gpu_ids")
def test_visible_devices_can_be_left_as_they_are(free):
    environment = {"RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES": "1"}
    actor = Where.options(num_gpus=1, runtime_env={"env_vars": environment}).remote()
    ids, visible = ray.get([actor.gpu_ids.remote(), actor.visible.remote()])
    assert visible == os.environ.get("CUDA_VISIBLE_DEVICES") and len(ids) == 1
    ray.kill(actor)


@shows("ray.get_gpu_ids")
def test_a_gpu_is_free_again_after_its_actor(free):
    for _ in range(3):
        actor = Where.options(num_gpus=4).remote()
        assert len(ray.get(actor.gpu_ids.remote())) == 4
        ray.kill(actor)


@refuses("ray.get_gpu_ids")
def test_get_gpu_ids_takes_no_argument():
    with pytest.raises(TypeError):
        ray.get_gpu_ids(0)


@refuses("ray.get_gpu_ids")
def test_more_than_one_gpu_with_a_fraction_is_a_value_error():
    with pytest.raises(ValueError):
        Where.options(num_gpus=1.5).remote()


@shows("ray.get_runtime_context")
def test_the_context_tells_the_node():
    assert ray.get_runtime_context().get_node_id() == the_node()["NodeID"]
    assert ray.get(Where.remote().node.remote()) == the_node()["NodeID"]


@shows("ray.get_runtime_context")
def test_the_context_tells_the_name_space():
    assert ray.get_runtime_context().namespace == "suite"
    assert ray.get(Where.remote().identity.remote())["space"] == "suite"


@shows("ray.get_runtime_context")
def test_the_context_tells_the_actor():
    actor = Where.options(name="known").remote()
    told = ray.get(actor.identity.remote())
    assert told["actor"] == actor._actor_id.hex() and told["name"] == "known"


@shows("ray.get_runtime_context")
def test_an_actor_without_a_name_has_none():
    assert not ray.get(Where.remote().identity.remote())["name"]


@shows("ray.get_runtime_context")
def test_the_driver_is_no_actor():
    context = ray.get_runtime_context()
    assert context.get_actor_id() is None


@shows("ray.get_runtime_context")
def test_driver_and_actors_are_of_the_same_job():
    job = ray.get_runtime_context().get_job_id()
    assert isinstance(job, str) and int(job, 16) > 0
    assert ray.get(Where.remote().identity.remote())["job"] == job


@shows("ray.get_runtime_context")
def test_each_call_has_a_task_of_its_own():
    actor = Where.remote()
    first, second = ray.get([actor.identity.remote(), actor.identity.remote()])
    assert first["task"] != second["task"]
    assert first["worker"] == second["worker"]


@shows("ray.get_runtime_context")
def test_two_actors_have_different_ids_and_workers():
    first, second = ray.get([Where.remote().identity.remote(), Where.remote().identity.remote()])
    assert first["actor"] != second["actor"] and first["worker"] != second["worker"]


@shows("ray.get_runtime_context")
def test_an_actor_gives_a_handle_of_itself():
    actor = Where.remote()
    myself = ray.get(actor.myself.remote())
    assert myself == actor
    assert ray.get(myself.text.remote()) == "text"


@shows("ray.get_runtime_context")
def test_accelerator_ids_are_texts(free):
    actor = Where.options(num_gpus=1).remote()
    ids, accelerators = ray.get([actor.gpu_ids.remote(), actor.accelerators.remote()])
    assert accelerators["GPU"] == [str(gpu) for gpu in ids]
    ray.kill(actor)


@shows("ray.get_runtime_context")
def test_accelerator_ids_are_empty_without_gpus():
    assert ray.get(Where.remote().accelerators.remote())["GPU"] == []
    assert ray.get_runtime_context().get_accelerator_ids()["GPU"] == []


@shows("ray.get_runtime_context")
def test_the_context_tells_the_assigned_resources(free):
    actor = Where.options(num_cpus=2, num_gpus=0.5, resources={"widget": 1}).remote()
    assert ray.get(actor.resources.remote()) == {"CPU": 2, "GPU": 0.5, "widget": 1}
    ray.kill(actor)


@shows("ray.get_runtime_context")
def test_the_address_of_the_cluster_has_a_port():
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    assert host and int(port) > 0


@refuses("ray.get_runtime_context")
def test_the_driver_has_no_current_actor():
    with pytest.raises(RuntimeError):
        ray.get_runtime_context().current_actor


@refuses("ray.get_runtime_context")
def test_the_driver_has_no_assigned_resources():
    with pytest.raises(AssertionError):
        ray.get_runtime_context().get_assigned_resources()


@refuses("ray.get_runtime_context")
def test_the_driver_cannot_be_canceled():
    with pytest.raises(RuntimeError):
        ray.get_runtime_context().is_canceled()


@refuses("ray.get_runtime_context")
def test_the_context_has_no_other_attributes():
    with pytest.raises(AttributeError):
        ray.get_runtime_context().no_such_thing


@shows("NodeAffinitySchedulingStrategy")
@pytest.mark.parametrize("soft", [False, True])
def test_an_actor_runs_on_the_node_that_was_named(soft):
    strategy = NodeAffinitySchedulingStrategy(node_id=the_node()["NodeID"], soft=soft)
    actor = Where.options(scheduling_strategy=strategy).remote()
    assert ray.get(actor.node.remote()) == the_node()["NodeID"]


@shows("NodeAffinitySchedulingStrategy")
def test_a_task_runs_on_the_node_that_was_named():
    strategy = NodeAffinitySchedulingStrategy(the_node()["NodeID"], False)
    assert ray.get(identity.options(scheduling_strategy=strategy).remote("here")) == "here"


@shows("NodeAffinitySchedulingStrategy")
def test_soft_affinity_gives_way():
    strategy = NodeAffinitySchedulingStrategy(node_id=NOWHERE, soft=True)
    actor = Where.options(scheduling_strategy=strategy).remote()
    assert ray.get(actor.node.remote(), timeout=60) == the_node()["NodeID"]


@shows("NodeAffinitySchedulingStrategy")
def test_the_fields_of_an_affinity_are_those_given():
    strategy = NodeAffinitySchedulingStrategy(NOWHERE, soft=True)
    assert strategy.node_id == NOWHERE and strategy.soft is True


@refuses("NodeAffinitySchedulingStrategy")
def test_hard_affinity_to_a_node_that_is_not_there_fails_an_actor():
    strategy = NodeAffinitySchedulingStrategy(node_id=NOWHERE, soft=False)
    actor = Where.options(scheduling_strategy=strategy).remote()
    with pytest.raises(ActorUnschedulableError):
        ray.get(actor.node.remote(), timeout=60)


@refuses("NodeAffinitySchedulingStrategy")
def test_hard_affinity_to_a_node_that_is_not_there_fails_a_task():
    strategy = NodeAffinitySchedulingStrategy(node_id=NOWHERE, soft=False)
    with pytest.raises(TaskUnschedulableError):
        ray.get(identity.options(scheduling_strategy=strategy).remote(1), timeout=60)


@refuses("NodeAffinitySchedulingStrategy")
@pytest.mark.parametrize("node_id", ["", "not hexadecimal", "abcd"], ids=repr)
def test_an_impossible_id_of_a_node_is_a_value_error(node_id):
    with pytest.raises(ValueError):
        NodeAffinitySchedulingStrategy(node_id=node_id, soft=False)


@refuses("NodeAffinitySchedulingStrategy")
def test_an_affinity_must_say_whether_it_is_soft():
    with pytest.raises(TypeError):
        NodeAffinitySchedulingStrategy(NOWHERE)


@shows("scheduling_strategy")
@pytest.mark.parametrize("strategy", ["SPREAD", "DEFAULT"])
def test_an_actor_is_placed_by_the_name_of_a_strategy(strategy):
    actor = Where.options(scheduling_strategy=strategy).remote()
    assert ray.get(actor.text.remote()) == "text"


@shows("scheduling_strategy")
@pytest.mark.parametrize("strategy", ["SPREAD", "DEFAULT"])
def test_a_task_is_placed_by_the_name_of_a_strategy(strategy):
    assert ray.get(identity.options(scheduling_strategy=strategy).remote(1)) == 1


@shows("scheduling_strategy")
def test_a_strategy_may_be_in_the_decorator():
    @ray.remote(num_cpus=0, scheduling_strategy="SPREAD")
    class Spread:
        def answer(self):
            return 1

    assert ray.get([Spread.remote().answer.remote() for _ in range(3)]) == [1, 1, 1]


@refuses("scheduling_strategy")
def test_an_unknown_name_of_a_strategy_is_a_value_error():
    with pytest.raises(ValueError):
        Where.options(scheduling_strategy="PACKED").remote()


@refuses("scheduling_strategy")
def test_a_strategy_of_another_type_is_a_type_error():
    with pytest.raises(TypeError):
        Where.options(scheduling_strategy=["SPREAD"]).remote()


@shows("ray.util.get_node_ip_address")
def test_the_address_of_the_node_has_four_numbers():
    assert [0 <= int(number) <= 255 for number in ray.util.get_node_ip_address().split(".")] == [True] * 4


@shows("ray.util.get_node_ip_address")
def test_an_actor_has_the_address_of_its_node():
    @ray.remote(num_cpus=0)
    def address():
        return ray.util.get_node_ip_address()

    assert ray.get(address.remote()) == ray.util.get_node_ip_address()


@shows("ray.util.get_node_ip_address")
def test_the_address_is_a_text_that_can_be_stripped():
    assert ray.util.get_node_ip_address().strip("[]") == ray.util.get_node_ip_address()


@refuses("ray.util.get_node_ip_address")
def test_get_node_ip_address_takes_no_keyword():
    with pytest.raises(TypeError):
        ray.util.get_node_ip_address(family=4)


@shows("num_cpus")
def test_an_actor_holds_the_cpus_it_asked_for(free):
    actor = Echo.options(num_cpus=3).remote()
    ray.get(actor.echo.remote())
    eventually(lambda: ray.available_resources().get("CPU") == 1)
    ray.kill(actor)


@shows("num_cpus")
def test_an_actor_holds_no_cpu_by_default(free):
    @ray.remote
    class Default:
        def answer(self):
            return 1

    actor = Default.remote()
    assert ray.get(actor.answer.remote()) == 1
    eventually(lambda: ray.available_resources().get("CPU") == 4)
    ray.kill(actor)


@shows("num_cpus")
def test_a_task_holds_one_cpu_by_default(free):
    @ray.remote
    def resources():
        return ray.get_runtime_context().get_assigned_resources()

    assert ray.get(resources.remote()) == {"CPU": 1}


@shows("num_cpus")
@pytest.mark.parametrize("cpus, threads", [(2, "2"), (1, "1"), (0.4, "1")])
def test_omp_threads_are_as_many_as_cpus(free, cpus, threads):
    if "OMP_NUM_THREADS" in os.environ:
        pytest.skip("OMP_NUM_THREADS is set")
    actor = Where.options(num_cpus=cpus).remote()
    assert ray.get(actor.omp_threads.remote()) == threads
    ray.kill(actor)


@refuses("num_cpus")
def test_a_negative_number_of_cpus_is_a_value_error():
    with pytest.raises(ValueError):
        Where.options(num_cpus=-0.5).remote()


@shows("num_cpus")
def test_a_method_that_waits_leaves_its_cpus_to_tasks(free):
    """Four tasks that hold all CPUs wait for a fifth, which gets a CPU because they wait."""
    @ray.remote(num_cpus=1)
    def inner():
        return 1

    @ray.remote(num_cpus=1)
    def outer():
        return ray.get(inner.remote())

    assert ray.get([outer.remote() for _ in range(4)], timeout=60) == [1, 1, 1, 1]
