# SPDX-License-Identifier: Apache-2.0
"""ray.util."""
from tandem import _tandem
from tandem.ray import _runtime
from tandem.ray._private.services import get_node_ip_address
from tandem.ray.util.actor_pool import ActorPool
from tandem.ray.util.placement_group import (get_current_placement_group, get_placement_group, placement_group,
                                             placement_group_table, remove_placement_group)
from tandem.ray.util import placement_group as _placement_group_module  # noqa: F401
from tandem.ray.util.placement_group import PlacementGroup  # noqa: F401
from tandem.ray.util import scheduling_strategies  # noqa: F401


def list_named_actors(all_namespaces=False):
    """Return the names of the living actors that have one."""
    _runtime.ensure_initialized()
    own = _tandem.describe()["namespace"]
    named = [actor for actor in _tandem.list_actors() if actor["name"] and actor["state"] != "DEAD"]
    if all_namespaces:
        return [{"name": actor["name"], "namespace": actor["namespace"]} for actor in named]
    return [actor["name"] for actor in named if actor["namespace"] == own]


__all__ = ["ActorPool", "get_current_placement_group", "get_node_ip_address", "get_placement_group",
           "list_named_actors", "placement_group", "placement_group_table", "remove_placement_group"]
