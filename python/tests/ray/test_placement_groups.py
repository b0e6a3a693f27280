# SPDX-License-Identifier: Apache-2.0
"""Placement groups: strategies, ready, wait, removal, tables, names, and actors in bundles."""
import asyncio
import time

import pytest
import ray
from ray.exceptions import ActorDiedError, GetTimeoutError, RayActorError
from ray.util.placement_group import (
    PlacementGroup, get_current_placement_group, get_placement_group, placement_group, placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from suite import Echo, eventually, refuses, shows

pytestmark = pytest.mark.usefixtures("cluster")


@pytest.fixture
def make():
    """Makes placement groups that are removed after the test, and waits until all resources are free again."""
    groups = []

    def make_group(*arguments, **named):
        groups.append(placement_group(*arguments, **named))
        return groups[-1]

    yield make_group
    for group in groups:
        # Ray loses the resources of a group that is removed while it is being placed.
        if state_of(group) != "REMOVED":
            group.wait(2)
            remove_placement_group(group)
    eventually(lambda: ray.available_resources().get("CPU") == 4 and ray.available_resources().get("GPU") == 4)


@ray.remote(num_cpus=0)
class Placed:
    def gpu_ids(self):
        return ray.get_gpu_ids()

    def group(self):
        return get_current_placement_group()

    def node(self):
        return ray.get_runtime_context().get_node_id()

    def child_group(self):
        child = Placed.options(num_cpus=1).remote()
        return ray.get(child.group.remote())

    def group_id(self):
        return ray.get_runtime_context().get_placement_group_id()


def inside(group, index=-1, **named):
    return PlacementGroupSchedulingStrategy(placement_group=group, placement_group_bundle_index=index, **named)


def state_of(group):
    return placement_group_table(group)["state"]


@shows("placement_group")
@pytest.mark.parametrize("strategy", ["PACK", "SPREAD", "STRICT_PACK"])
def test_a_group_is_placed_by_each_strategy(make, strategy):
    group = make([{"CPU": 1}, {"CPU": 1}], strategy=strategy)
    assert group.wait(60)
    assert placement_group_table(group)["strategy"] == strategy


@shows("placement_group")
def test_pack_is_the_default_strategy(make):
    group = make([{"CPU": 1}])
    assert group.wait(60)
    assert placement_group_table(group)["strategy"] == "PACK"


@shows("placement_group")
def test_strict_spread_with_one_bundle_is_placed(make):
    assert make([{"CPU": 1}], strategy="STRICT_SPREAD").wait(60)


@shows("placement_group")
def test_making_a_group_returns_a_group(make):
    assert isinstance(make([{"CPU": 1}]), PlacementGroup)


@shows("placement_group")
def test_a_group_reserves_its_resources(make):
    group = make([{"CPU": 2, "GPU": 3}])
    assert group.wait(60)
    eventually(lambda: ray.available_resources().get("CPU") == 2)
    assert ray.available_resources().get("GPU") == 1


@shows("placement_group")
def test_a_group_holds_resources_of_the_users(make):
    group = make([{"widget": 1}, {"widget": 1}])
    assert group.wait(60)
    eventually(lambda: ray.available_resources().get("widget", 0) == 0)


@shows("placement_group")
def test_bundles_may_have_parts_of_a_cpu(make):
    assert make([{"CPU": 0.5}, {"CPU": 0.25}]).wait(60)


@shows("placement_group")
def test_a_group_that_does_not_fit_now_waits(make):
    first = make([{"CPU": 4}])
    assert first.wait(60)
    second = make([{"CPU": 1}])
    assert not second.wait(0.5)
    remove_placement_group(first)
    assert second.wait(60)


@shows("placement_group")
def test_groups_may_be_made_in_tasks():
    @ray.remote(num_cpus=0)
    def make_inside():
        group = placement_group([{"CPU": 1}])
        ready = group.wait(60)
        remove_placement_group(group)
        return ready

    assert ray.get(make_inside.remote()) is True


@refuses("placement_group")
@pytest.mark.parametrize("bundles", [
    [], [{}], [{"CPU": 0}], {"CPU": 1}, "CPU", [1], [{"CPU": "1"}], [{1: 1}], [{"CPU": 1}, {}],
], ids=str)
def test_impossible_bundles_are_a_value_error(bundles):
    with pytest.raises(ValueError):
        placement_group(bundles)


@refuses("placement_group")
def test_an_unknown_strategy_is_a_value_error():
    with pytest.raises(ValueError):
        placement_group([{"CPU": 1}], strategy="TIGHT")


@refuses("placement_group")
def test_an_unknown_lifetime_of_a_group_is_a_value_error():
    with pytest.raises(ValueError):
        placement_group([{"CPU": 1}], lifetime="forever")


@refuses("placement_group")
def test_a_group_needs_bundles():
    with pytest.raises(TypeError):
        placement_group()


@refuses("placement_group")
def test_a_group_knows_no_other_keyword():
    with pytest.raises(TypeError):
        placement_group([{"CPU": 1}], nodes=1)


@shows("PlacementGroup.ready")
def test_ready_is_a_reference(make):
    group = make([{"CPU": 1}])
    ready = group.ready()
    assert isinstance(ready, ray.ObjectRef)
    ray.get(ready, timeout=60)


@shows("PlacementGroup.ready")
def test_ready_gives_the_group(make):
    group = make([{"CPU": 1}])
    assert ray.get(group.ready(), timeout=60) == group


@shows("PlacementGroup.ready")
def test_ready_can_be_waited_for(make):
    group = make([{"CPU": 1}])
    ready = group.ready()
    assert ray.wait([ready], timeout=60) == ([ready], [])


@shows("PlacementGroup.ready")
def test_ready_can_be_awaited(make):
    async def main():
        group = make([{"CPU": 1}])
        return await group.ready() == group

    assert asyncio.run(main())


@shows("PlacementGroup.ready")
def test_several_groups_become_ready(make):
    groups = [make([{"CPU": 1}]) for _ in range(3)]
    ray.get([group.ready() for group in groups], timeout=60)


@refuses("PlacementGroup.ready")
def test_ready_of_a_group_that_waits_times_out(make):
    first = make([{"CPU": 4}])
    assert first.wait(60)
    second = make([{"CPU": 1}])
    with pytest.raises(GetTimeoutError):
        ray.get(second.ready(), timeout=0.3)


@refuses("PlacementGroup.ready")
def test_ready_takes_no_argument(make):
    with pytest.raises(TypeError):
        make([{"CPU": 1}]).ready(5)


@shows("PlacementGroup.wait")
def test_wait_is_true_when_the_group_is_placed(make):
    assert make([{"CPU": 1}]).wait(timeout_seconds=60) is True


@shows("PlacementGroup.wait")
def test_wait_is_false_after_its_timeout(make):
    first = make([{"CPU": 4}])
    assert first.wait(60)
    assert make([{"CPU": 1}]).wait(0.2) is False


@shows("PlacementGroup.wait")
def test_wait_can_be_repeated(make):
    group = make([{"CPU": 1}])
    assert group.wait(60) and group.wait(60)


@refuses("PlacementGroup.wait")
def test_wait_knows_no_other_keyword(make):
    with pytest.raises(TypeError):
        make([{"CPU": 1}]).wait(timeout=5)


@shows("PlacementGroup.bundle_specs")
def test_bundle_specs_are_the_bundles(make):
    bundles = [{"CPU": 1.0, "GPU": 1.0}, {"CPU": 2.0}]
    group = make(bundles)
    assert group.wait(60)
    assert group.bundle_specs == bundles


@shows("PlacementGroup.bundle_specs")
def test_bundle_count_is_the_number_of_bundles(make):
    assert make([{"CPU": 1}, {"CPU": 1}, {"GPU": 1}]).bundle_count == 3


@shows("PlacementGroup.bundle_specs")
def test_bundle_specs_are_known_where_the_group_arrives(make, echo):
    group = make([{"CPU": 1.0}, {"GPU": 2.0}])
    assert group.wait(60)
    assert ray.get(echo.echo.remote(group)).bundle_specs == [{"CPU": 1.0}, {"GPU": 2.0}]


@refuses("PlacementGroup.bundle_specs")
def test_bundle_specs_cannot_be_set(make):
    group = make([{"CPU": 1}])
    with pytest.raises(AttributeError):
        group.bundle_specs = []


@shows("PlacementGroup.id")
def test_the_id_of_a_group_is_its_key_in_the_table(make):
    group = make([{"CPU": 1}])
    assert group.wait(60)
    assert group.id.hex() in placement_group_table()


@shows("PlacementGroup.id")
def test_groups_are_equal_by_their_id(make, echo):
    first, second = make([{"CPU": 1}]), make([{"CPU": 1}])
    assert first != second
    assert ray.get(echo.echo.remote(first)) == first


@shows("PlacementGroup.id")
def test_a_group_is_a_key_of_a_dictionary(make):
    first, second = make([{"CPU": 1}]), make([{"CPU": 1}])
    assert {first: 1, second: 2}[second] == 2


@refuses("PlacementGroup.id")
def test_a_group_has_no_attribute_of_another_name(make):
    with pytest.raises(AttributeError):
        make([{"CPU": 1}]).identity


@shows("remove_placement_group")
def test_a_removed_group_frees_its_resources(make):
    group = make([{"CPU": 4}])
    assert group.wait(60)
    remove_placement_group(group)
    eventually(lambda: ray.available_resources().get("CPU") == 4)


@shows("remove_placement_group")
def test_a_removed_group_is_in_state_removed(make):
    group = make([{"CPU": 1}])
    assert group.wait(60)
    remove_placement_group(group)
    eventually(lambda: state_of(group) == "REMOVED")


@shows("remove_placement_group")
def test_removing_a_group_ends_its_actors(make):
    group = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, scheduling_strategy=inside(group, 0)).remote()
    ray.get(actor.node.remote(), timeout=60)
    remove_placement_group(group)

    def died():
        try:
            ray.get(actor.node.remote(), timeout=60)
        except RayActorError as error:
            return error
        return None

    assert isinstance(eventually(died), ActorDiedError)


@shows("remove_placement_group")
def test_a_group_may_be_removed_twice(make):
    group = make([{"CPU": 1}])
    assert group.wait(60)
    remove_placement_group(group)
    remove_placement_group(group)


@shows("remove_placement_group")
def test_a_group_that_waits_can_be_removed(make):
    first = make([{"CPU": 4}])
    assert first.wait(60)
    second = make([{"CPU": 4}])
    assert not second.wait(0.1)
    remove_placement_group(second)
    eventually(lambda: state_of(second) == "REMOVED")


@refuses("remove_placement_group")
def test_only_groups_can_be_removed():
    with pytest.raises(AssertionError):
        remove_placement_group(None)


@shows("placement_group_table")
def test_the_table_tells_state_bundles_and_nodes(make):
    group = make([{"CPU": 1}, {"GPU": 1}], name="told")
    assert group.wait(60)
    table = placement_group_table(group)
    node, = (node["NodeID"] for node in ray.nodes() if node["Alive"])
    assert table["state"] == "CREATED"
    assert table["name"] == "told"
    assert table["placement_group_id"] == group.id.hex()
    assert table["bundles"] == {0: {"CPU": 1.0}, 1: {"GPU": 1.0}}
    assert table["bundles_to_node_id"] == {0: node, 1: node}


@shows("placement_group_table")
def test_a_group_that_waits_is_pending(make):
    first = make([{"CPU": 4}])
    assert first.wait(60)
    second = make([{"CPU": 2}])
    assert not second.wait(0.2)
    assert state_of(second) == "PENDING"


@shows("placement_group_table")
def test_the_table_without_argument_has_all_groups(make):
    groups = [make([{"CPU": 1}]) for _ in range(2)]
    assert all(group.wait(60) for group in groups)
    table = placement_group_table()
    assert all(table[group.id.hex()]["state"] == "CREATED" for group in groups)


@shows("placement_group_table")
def test_ray_util_has_the_table_too(make):
    group = make([{"CPU": 1}])
    assert group.wait(60)
    assert ray.util.placement_group_table(group) == placement_group_table(group)


@refuses("placement_group_table")
def test_the_table_of_something_else_is_an_attribute_error():
    with pytest.raises(AttributeError):
        placement_group_table("a name")


@shows("get_placement_group")
def test_a_name_finds_its_group(make):
    group = make([{"CPU": 1}], name="by name")
    assert group.wait(60)
    assert get_placement_group("by name") == group


@shows("get_placement_group")
def test_a_task_finds_a_group_by_name(make):
    group = make([{"CPU": 1}], name="in a task")
    assert group.wait(60)

    @ray.remote(num_cpus=0)
    def find():
        return ray.util.get_placement_group("in a task")

    assert ray.get(find.remote()) == group


@shows("get_placement_group")
def test_a_found_group_can_be_used(make):
    make([{"CPU": 1}], name="used").wait(60)
    found = get_placement_group("used")
    actor = Placed.options(num_cpus=1, scheduling_strategy=inside(found, 0)).remote()
    assert ray.get(actor.group.remote(), timeout=60) == found


@shows("get_placement_group")
def test_a_name_is_free_after_the_removal(make):
    group = make([{"CPU": 1}], name="again")
    assert group.wait(60)
    remove_placement_group(group)
    eventually(lambda: state_of(group) == "REMOVED")
    other = make([{"CPU": 1}], name="again")
    assert other.wait(60) and other != group


@refuses("get_placement_group")
@pytest.mark.parametrize("name", ["no such group", ""])
def test_an_unknown_group_is_a_value_error(name):
    with pytest.raises(ValueError):
        get_placement_group(name)


@shows("detached placement group")
def test_a_detached_group_is_placed_and_removed(make):
    group = make([{"CPU": 1}], name="detached", lifetime="detached")
    assert group.wait(60)
    assert placement_group_table(group)["state"] == "CREATED"


@shows("detached placement group")
def test_a_detached_group_outlives_its_creator(make):
    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            group = placement_group([{"CPU": 1}], name="left behind", lifetime="detached")
            return group.wait(60)

    maker = Maker.remote()
    assert ray.get(maker.make.remote())
    ray.kill(maker)
    group = get_placement_group("left behind")
    assert group.wait(60)
    remove_placement_group(group)


@shows("detached placement group")
def test_a_group_stays_when_the_actor_that_made_it_ends():
    """A group that is not detached belongs to the job, also when an actor of the job made it."""
    @ray.remote(num_cpus=0)
    class Maker:
        def make(self):
            self.group = placement_group([{"CPU": 1}])
            self.group.wait(60)
            return self.group

    maker = Maker.remote()
    group = ray.get(maker.make.remote())
    ray.kill(maker)
    time.sleep(1)
    assert state_of(group) == "CREATED"
    remove_placement_group(group)


@refuses("detached placement group")
def test_a_lifetime_of_a_group_is_detached_or_none():
    with pytest.raises(ValueError):
        placement_group([{"CPU": 1}], lifetime=True)


@shows("PlacementGroupSchedulingStrategy")
def test_an_actor_runs_in_a_bundle(make):
    group = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, scheduling_strategy=inside(group, 0)).remote()
    assert ray.get(actor.group.remote(), timeout=60) == group


@shows("PlacementGroupSchedulingStrategy")
def test_a_task_runs_in_a_bundle(make):
    group = make([{"CPU": 1}])

    @ray.remote(num_cpus=1)
    def current():
        return get_current_placement_group()

    assert ray.get(current.options(scheduling_strategy=inside(group, 0)).remote(), timeout=60) == group


@shows("PlacementGroupSchedulingStrategy")
def test_any_bundle_is_the_default(make):
    group = make([{"CPU": 1}, {"CPU": 1}])
    actors = [Placed.options(num_cpus=1, scheduling_strategy=PlacementGroupSchedulingStrategy(group)).remote()
              for _ in range(2)]
    assert ray.get([actor.group.remote() for actor in actors], timeout=60) == [group, group]


@shows("PlacementGroupSchedulingStrategy")
def test_actors_of_a_bundle_share_its_gpu(make):
    group = make([{"CPU": 1, "GPU": 1}, {"CPU": 1, "GPU": 1}])
    strategy = inside(group, 1)
    pair = [Placed.options(num_gpus=0.4, scheduling_strategy=strategy).remote() for _ in range(2)]
    first, second = ray.get([actor.gpu_ids.remote() for actor in pair], timeout=60)
    assert first == second and len(first) == 1


@shows("PlacementGroupSchedulingStrategy")
def test_bundles_have_different_gpus(make):
    group = make([{"GPU": 1}, {"GPU": 1}, {"GPU": 1}])
    actors = [Placed.options(num_gpus=1, scheduling_strategy=inside(group, index)).remote() for index in range(3)]
    ids = ray.get([actor.gpu_ids.remote() for actor in actors], timeout=60)
    assert len({gpu for own in ids for gpu in own}) == 3


@shows("PlacementGroupSchedulingStrategy")
def test_an_actor_waits_for_room_in_its_bundle(make):
    group = make([{"CPU": 1}])
    strategy = inside(group, 0)
    first = Placed.options(num_cpus=1, scheduling_strategy=strategy).remote()
    ray.get(first.node.remote(), timeout=60)
    second = Placed.options(num_cpus=1, scheduling_strategy=strategy).remote()
    waiting = second.node.remote()
    assert ray.wait([waiting], timeout=0.5) == ([], [waiting])
    ray.kill(first)
    assert ray.get(waiting, timeout=60)


@shows("PlacementGroupSchedulingStrategy")
def test_an_actor_waits_until_its_group_is_placed(make):
    first = make([{"CPU": 4}])
    assert first.wait(60)
    second = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, scheduling_strategy=inside(second, 0)).remote()
    waiting = actor.group.remote()
    assert ray.wait([waiting], timeout=0.5) == ([], [waiting])
    remove_placement_group(first)
    assert ray.get(waiting, timeout=60) == second


@shows("PlacementGroupSchedulingStrategy")
def test_children_are_not_captured_by_default(make):
    group = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, scheduling_strategy=inside(group, 0)).remote()
    assert ray.get(actor.child_group.remote(), timeout=60) is None


@shows("PlacementGroupSchedulingStrategy")
def test_children_are_captured_where_that_is_asked_for(make):
    group = make([{"CPU": 2}])
    strategy = inside(group, 0, placement_group_capture_child_tasks=True)
    actor = Placed.options(num_cpus=1, scheduling_strategy=strategy).remote()
    assert ray.get(actor.child_group.remote(), timeout=60) == group


@shows("PlacementGroupSchedulingStrategy")
def test_the_fields_of_the_strategy_are_those_given(make):
    group = make([{"CPU": 1}])
    strategy = PlacementGroupSchedulingStrategy(group, 0, True)
    assert strategy.placement_group == group
    assert strategy.placement_group_bundle_index == 0
    assert strategy.placement_group_capture_child_tasks is True


@shows("PlacementGroupSchedulingStrategy")
def test_the_older_options_name_group_and_bundle(make):
    group = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, placement_group=group, placement_group_bundle_index=0).remote()
    assert ray.get(actor.group.remote(), timeout=60) == group


@refuses("PlacementGroupSchedulingStrategy")
@pytest.mark.parametrize("index", [2, -2, 99])
def test_a_bundle_that_does_not_exist_is_a_value_error(make, index):
    group = make([{"CPU": 1}, {"CPU": 1}])
    with pytest.raises(ValueError):
        Placed.options(num_cpus=1, scheduling_strategy=inside(group, index)).remote()


@refuses("PlacementGroupSchedulingStrategy")
@pytest.mark.parametrize("options", [{"num_gpus": 1}, {"num_cpus": 2}, {"resources": {"widget": 1}}], ids=str)
def test_a_request_that_no_bundle_can_hold_is_a_value_error(make, options):
    group = make([{"CPU": 1}])
    with pytest.raises(ValueError):
        Placed.options(scheduling_strategy=inside(group), **options).remote()


@refuses("PlacementGroupSchedulingStrategy")
def test_the_strategy_needs_a_group():
    with pytest.raises(TypeError):
        PlacementGroupSchedulingStrategy()


@refuses("PlacementGroupSchedulingStrategy")
def test_old_and_new_options_together_are_a_value_error(make):
    group = make([{"CPU": 1}])
    with pytest.raises(ValueError):
        Placed.options(num_cpus=1, placement_group=group, scheduling_strategy=inside(group)).remote()


@shows("get_current_placement_group")
def test_the_driver_is_in_no_group():
    assert get_current_placement_group() is None


@shows("get_current_placement_group")
def test_an_actor_outside_is_in_no_group():
    assert ray.get(Placed.remote().group.remote()) is None


@shows("get_current_placement_group")
def test_the_context_tells_the_id_of_the_group(make):
    group = make([{"CPU": 1}])
    actor = Placed.options(num_cpus=1, scheduling_strategy=inside(group)).remote()
    assert ray.get(actor.group_id.remote(), timeout=60) == group.id.hex()


@refuses("get_current_placement_group")
def test_the_current_group_takes_no_argument():
    with pytest.raises(TypeError):
        get_current_placement_group(1)


@shows("placement_group")
def test_an_actor_outside_does_not_get_what_a_group_reserved(make):
    group = make([{"GPU": 4}])
    assert group.wait(60)
    outside = Echo.options(num_gpus=1).remote()
    waiting = outside.echo.remote("outside")
    assert ray.wait([waiting], timeout=0.5) == ([], [waiting])
    remove_placement_group(group)
    assert ray.get(waiting, timeout=60) == "outside"
    ray.kill(outside)
