# SPDX-License-Identifier: Apache-2.0
"""Names that frameworks use though Ray does not promise them."""
import os
import subprocess
import sys

import pytest
import ray
import ray._private.services
import ray._private.state
import ray._private.worker
from ray.exceptions import RayActorError

from suite import Counter, Echo, eventually, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


class Base:
    def inherited(self):
        return "inherited"


@ray.remote(num_cpus=0)
class Derived(Base):
    def __init__(self, value=0):
        self.value = value

    def read(self):
        return self.value


@shows("_private.services.get_node_ip_address")
def test_the_private_address_of_the_node_is_the_public_one():
    assert ray._private.services.get_node_ip_address() == ray.util.get_node_ip_address()


@shows("_private.services.get_node_ip_address")
def test_an_actor_calls_the_private_name():
    @ray.remote(num_cpus=0)
    def address():
        return ray._private.services.get_node_ip_address()

    assert ray.get(address.remote()) == ray.util.get_node_ip_address()


@shows("_private.services.get_node_ip_address")
def test_the_private_name_can_be_imported():
    from ray._private.services import get_node_ip_address
    assert get_node_ip_address().count(".") == 3


@refuses("_private.services.get_node_ip_address")
def test_the_private_name_knows_no_other_keyword():
    with pytest.raises(TypeError):
        ray._private.services.get_node_ip_address(family=6)


@shows("_actor_id")
def test_an_actor_id_is_hexadecimal(echo):
    assert len(bytes.fromhex(echo._actor_id.hex())) >= 8


@shows("_actor_id")
def test_an_actor_knows_its_own_id(echo):
    @ray.remote(num_cpus=0)
    class Knows:
        def own(self):
            return ray.get_runtime_context().get_actor_id()

    actor = Knows.remote()
    assert ray.get(actor.own.remote()) == actor._actor_id.hex()


@shows("_actor_id")
def test_ids_of_two_actors_differ(echo):
    assert Counter.remote()._actor_id.hex() != echo._actor_id.hex()


@shows("_actor_id")
def test_an_id_travels_with_its_handle(echo):
    @ray.remote(num_cpus=0)
    def id_of(handle):
        return handle._actor_id.hex()

    assert ray.get(id_of.remote(echo)) == echo._actor_id.hex()


@shows("_actor_id")
def test_ids_are_equal_and_keys_of_dictionaries(echo):
    table = {echo._actor_id: "echo"}
    assert table[ray.get(echo.echo.remote(echo))._actor_id] == "echo"


@refuses("_actor_id")
def test_an_actor_class_has_no_actor_id():
    with pytest.raises(AttributeError):
        Counter._actor_id


@shows("__ray_call__")
def test_ray_call_runs_a_function_with_the_object_of_the_actor():
    actor = Derived.remote(5)
    assert ray.get(actor.__ray_call__.remote(lambda self: self.value)) == 5


@shows("__ray_call__")
def test_ray_call_passes_arguments():
    actor = Derived.remote(5)
    total = actor.__ray_call__.remote(lambda self, first, second=0: self.value + first + second, 10, second=100)
    assert ray.get(total) == 115


@shows("__ray_call__")
def test_ray_call_changes_the_state():
    actor = Derived.remote(1)

    def change(self):
        self.value = "changed"

    ray.get(actor.__ray_call__.remote(change))
    assert ray.get(actor.read.remote()) == "changed"


@shows("__ray_call__")
def test_ray_call_works_in_an_async_actor(gate):
    assert ray.get(gate.__ray_call__.remote(lambda self: self.event.is_set())) is False


@refuses("__ray_call__")
def test_ray_call_raises_the_failure_of_the_function():
    def fail(self):
        raise KeyError("in the function")

    with pytest.raises(KeyError):
        ray.get(Derived.remote().__ray_call__.remote(fail))


@shows("__ray_ready__")
def test_ray_ready_is_true_when_the_actor_is_constructed(echo):
    assert ray.get(echo.__ray_ready__.remote()) is True


@shows("__ray_ready__")
def test_ray_ready_waits_for_the_constructor(gate):
    @ray.remote(num_cpus=0)
    class Slow:
        def __init__(self, gates):
            ray.get(gates[0].wait.remote())

    slow = Slow.remote([gate])
    ready = slow.__ray_ready__.remote()
    assert ray.wait([ready], timeout=0.5) == ([], [ready])
    gate.open.remote()
    assert ray.get(ready, timeout=60) is True


@shows("__ray_ready__")
def test_ray_ready_works_in_an_async_actor(gate):
    assert ray.get(gate.__ray_ready__.remote()) is True


@refuses("__ray_ready__")
def test_ray_ready_raises_the_failure_of_the_constructor():
    @ray.remote(num_cpus=0)
    class Broken:
        def __init__(self):
            raise ValueError("broken")

    with pytest.raises(RayActorError):
        ray.get(Broken.remote().__ray_ready__.remote(), timeout=60)


@shows("__ray_terminate__")
def test_ray_terminate_ends_the_process():
    echo = Echo.remote()
    pid = ray.get(echo.pid.remote())
    echo.__ray_terminate__.remote()

    def ended():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    eventually(ended)


@shows("__ray_terminate__")
def test_calls_before_ray_terminate_are_done():
    counter = Counter.remote()
    results = [counter.add.remote() for _ in range(5)]
    counter.__ray_terminate__.remote()
    assert ray.get(results) == [1, 2, 3, 4, 5]


@shows("__ray_terminate__")
def test_the_end_of_ray_terminate_can_be_waited_for():
    counter = Counter.remote()
    ended = counter.__ray_terminate__.remote()
    assert ray.wait([ended], timeout=60) == ([ended], [])


@refuses("__ray_terminate__")
def test_a_call_after_ray_terminate_raises():
    counter = Counter.remote()
    ray.get(counter.value.remote())
    counter.__ray_terminate__.remote()

    def died():
        try:
            ray.get(counter.value.remote(), timeout=60)
        except RayActorError as error:
            return error
        return None

    assert isinstance(eventually(died), ray.exceptions.ActorDiedError)


@shows("__ray_actor_class__")
def test_the_class_behind_an_actor_class_is_reachable():
    assert issubclass(Derived.__ray_actor_class__, Base)
    assert Derived.__ray_actor_class__(4).read() == 4


@shows("__ray_actor_class__")
def test_the_bases_of_the_class_are_reachable():
    assert Base in Derived.__ray_actor_class__.__mro__
    assert Derived.__ray_actor_class__.__name__ == "Derived"


@shows("__ray_actor_class__")
def test_a_subclass_of_the_class_can_be_made_remote():
    class Further(Derived.__ray_actor_class__):
        def read(self):
            return "further " + str(super().read())

    assert ray.get(ray.remote(num_cpus=0)(Further).remote(3).read.remote()) == "further 3"


@shows("__ray_actor_class__")
def test_the_type_of_an_actor_class_tells_its_name():
    assert type(Derived).__name__ == "ActorClass(Derived)"


@refuses("__ray_actor_class__")
def test_a_class_that_is_not_remote_has_no_class_behind():
    with pytest.raises(AttributeError):
        Base.__ray_actor_class__


@shows("_default_options")
def test_the_options_of_the_decorator_are_reachable():
    @ray.remote(num_cpus=2, num_gpus=1, max_restarts=3)
    class Configured:
        pass

    options = Configured._default_options
    assert (options["num_cpus"], options["num_gpus"], options["max_restarts"]) == (2, 1, 3)


@shows("_default_options")
def test_the_runtime_env_of_the_decorator_is_reachable():
    @ray.remote(runtime_env={"env_vars": {"A": "1"}})
    class Configured:
        pass

    assert Configured._default_options["runtime_env"]["env_vars"] == {"A": "1"}


@shows("_default_options")
def test_options_may_be_made_from_the_default_ones():
    @ray.remote(num_cpus=0, max_concurrency=2)
    class Configured:
        def answer(self):
            return 1

    assert ray.get(Configured.options(**Configured._default_options).remote().answer.remote()) == 1


@refuses("_default_options")
def test_a_plain_class_has_no_default_options():
    with pytest.raises(AttributeError):
        Base._default_options


@shows("_private.worker.global_worker")
def test_the_worker_knows_the_address_of_the_cluster():
    address = ray._private.worker.global_worker.gcs_client.address
    assert address == ray.get_runtime_context().gcs_address


@shows("_private.worker.global_worker")
def test_the_worker_is_connected():
    assert ray._private.worker.global_worker.connected


@shows("_private.worker.global_worker")
def test_the_worker_knows_the_name_space():
    assert ray._private.worker.global_worker.namespace == "suite"


@refuses("_private.worker.global_worker")
def test_the_worker_has_no_other_attributes():
    with pytest.raises(AttributeError):
        ray._private.worker.global_worker.no_such_thing


@shows("_private.state")
def test_available_resources_are_told_for_each_node():
    node, = (node["NodeID"] for node in ray.nodes() if node["Alive"])
    per_node = eventually(ray._private.state.available_resources_per_node)
    assert set(per_node) == {node}
    assert per_node[node]["CPU"] == 4


@shows("_private.state")
def test_the_state_has_the_table_of_placement_groups():
    group = ray.util.placement_group([{"CPU": 1}])
    assert group.wait(60)
    table = ray._private.state.state.placement_group_table()
    assert table[group.id.hex()]["state"] == "CREATED"
    ray.util.remove_placement_group(group)


@shows("_private.state")
def test_the_state_knows_a_placement_group_by_its_id():
    group = ray.util.placement_group([{"CPU": 1}])
    assert group.wait(60)
    row = ray._private.state.state.placement_group_table(group.id)
    assert list(row["bundles_to_node_id"]) == [0]
    assert row["bundles_to_node_id"][0] in {node["NodeID"] for node in ray.nodes()}
    ray.util.remove_placement_group(group)


@shows("pickled references")
def test_handles_have_helpers_that_make_bytes_of_them():
    counter = Counter.remote(3)
    state, _, weak = counter._serialization_helper()
    again = ray.actor.ActorHandle._deserialization_helper(state, weak)
    assert again == counter and ray.get(again.add.remote()) == 4


@shows("_private.state")
def test_the_total_resources_are_told_for_each_node():
    per_node = ray._private.state.total_resources_per_node()
    assert [resources["GPU"] for resources in per_node.values()] == [4]


@refuses("_private.state")
def test_the_private_state_takes_no_argument():
    with pytest.raises(TypeError):
        ray._private.state.available_resources_per_node("node")


@shows("names of types")
def test_types_may_have_parameters_in_annotations():
    def read(ref: ray.ObjectRef[int], handle: ray.actor.ActorHandle[Base]) -> int:
        return ray.get(ref)

    assert read(ray.put(5), None) == 5


@shows("names of types")
def test_remote_functions_and_classes_have_types(echo):
    assert isinstance(ray.remote(lambda: 1), ray.remote_function.RemoteFunction)
    assert isinstance(Derived, ray.actor.ActorClass)
    assert not isinstance(Derived, type)


@shows("names of types")
def test_an_id_of_an_actor_can_be_made_from_its_text(echo):
    assert isinstance(echo._actor_id, ray.ActorID)
    assert ray.ActorID.from_hex(echo._actor_id.hex()) == echo._actor_id


@shows("names of types")
def test_a_module_named_ray_with_a_version_is_found():
    import importlib.util
    assert importlib.util.find_spec("ray") is not None
    assert [int(number) for number in ray.__version__.split(".")[:2]] >= [2, 60]


@shows("names of types")
def test_the_variable_of_the_job_has_a_name():
    from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
    assert RAY_JOB_CONFIG_JSON_ENV_VAR == "RAY_JOB_CONFIG_JSON_ENV_VAR"


@shows("names of types")
def test_private_modules_are_there_after_the_import_of_ray_alone():
    program = "import ray; ray._private.state.state, ray._private.worker.global_worker, ray._private.services"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@refuses("names of types")
def test_an_id_of_an_actor_is_not_made_from_text():
    with pytest.raises(TypeError):
        ray.ActorID("text")
