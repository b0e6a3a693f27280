# SPDX-License-Identifier: Apache-2.0
"""ray._private.state."""
from tandem import _tandem


def _per_node(index):
    """Return {node ID: {resource: total (0) or free (1) amount}}."""
    return {node["id"]: {name: amounts[index] for name, amounts in node["amounts"].items() if amounts[0]}
            for node in _tandem.list_nodes()}


def available_resources_per_node():
    """Return the free resources of each node."""
    return _per_node(1)


def total_resources_per_node():
    """Return the resources of each node."""
    return _per_node(0)


class _State:
    """The methods of ray._private.state.state that Tandem offers."""

    def placement_group_table(self, placement_group_id=None):
        from tandem.ray.util.placement_group import placement_group_table
        table = placement_group_table()
        if placement_group_id is None:
            return table
        return table[placement_group_id if isinstance(placement_group_id, str) else placement_group_id.hex()]

    available_resources_per_node = staticmethod(available_resources_per_node)
    total_resources_per_node = staticmethod(total_resources_per_node)


state = _State()
