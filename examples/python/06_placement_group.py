# SPDX-License-Identifier: Apache-2.0
"""Placement groups: bundles of resources that are reserved together, and actors in them."""
import ray
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Worker:
    def where(self):
        context = ray.get_runtime_context()
        return context.get_placement_group_id()

    def resources(self):
        return ray.get_runtime_context().get_assigned_resources().get("CPU")


@ray.remote(num_cpus=1, resources={"extra": 1})
def with_extra():
    return "ran with an extra"


ray.init(num_cpus=4, resources={"extra": 2})
print("cluster:", {name: ray.cluster_resources()[name] for name in ("CPU", "extra")})

group = placement_group([{"CPU": 1}, {"CPU": 1, "extra": 1}], strategy="PACK", name="pair")
ray.get(group.ready(), timeout=20)
print("bundles:", group.bundle_specs, group.bundle_count)
print("wait:", group.wait(10))

workers = [Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(
    placement_group=group, placement_group_bundle_index=index)).remote() for index in range(2)]
print("in the group:", [ray.get(worker.where.remote()) == group.id.hex() for worker in workers])

table = placement_group_table(group)
print("table:", table["name"], table["strategy"], table["state"], table["bundles"])
print("found by name:", ray.util.get_placement_group("pair").id == group.id)
print("free while reserved:", ray.available_resources()["CPU"], ray.available_resources()["extra"])

too_large = placement_group([{"CPU": 16}])
ready, waiting = ray.wait([too_large.ready()], timeout=1)
print("too large:", len(ready), len(waiting))
remove_placement_group(too_large)

try:
    Worker.options(scheduling_strategy=PlacementGroupSchedulingStrategy(
        placement_group=group, placement_group_bundle_index=7)).remote()
except ValueError as error:
    print("ValueError:", "index" in str(error))
try:
    placement_group([{"CPU": 1}], strategy="SOMEHOW")
except ValueError as error:
    print("ValueError:", "SOMEHOW" in str(error))

remove_placement_group(group)
try:
    ray.get(workers[0].where.remote(), timeout=20)
except ray.exceptions.RayActorError as error:
    print("after removal:", type(error).__name__)
print("state:", placement_group_table(group)["state"])
print(ray.get(with_extra.remote()))
