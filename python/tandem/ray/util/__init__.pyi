# SPDX-License-Identifier: Apache-2.0
"""Types of tandem.ray.util."""
from typing import Any

from tandem.ray._private.services import get_node_ip_address as get_node_ip_address
from tandem.ray.util import scheduling_strategies as scheduling_strategies
from tandem.ray.util.actor_pool import ActorPool as ActorPool
from tandem.ray.util.placement_group import (PlacementGroup as PlacementGroup,
                                             get_current_placement_group as get_current_placement_group,
                                             get_placement_group as get_placement_group,
                                             placement_group as placement_group,
                                             placement_group_table as placement_group_table,
                                             remove_placement_group as remove_placement_group)

def list_named_actors(all_namespaces: bool = False) -> list[Any]: ...
