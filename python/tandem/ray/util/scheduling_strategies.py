# SPDX-License-Identifier: Apache-2.0
"""ray.util.scheduling_strategies."""


class PlacementGroupSchedulingStrategy:
    """Place an actor or task in a placement group."""

    def __init__(self, placement_group, placement_group_bundle_index=-1, placement_group_capture_child_tasks=None):
        self.placement_group = placement_group
        self.placement_group_bundle_index = placement_group_bundle_index
        self.placement_group_capture_child_tasks = placement_group_capture_child_tasks


_ID_DIGITS = 32  # Of a node of Tandem; those of Ray have 56.
_UNKNOWN_NODE = "f" * _ID_DIGITS


class NodeAffinitySchedulingStrategy:
    """Place an actor or task on a node."""

    def __init__(self, node_id, soft, _spill_on_unavailable=False, _fail_on_unavailable=False):
        self.node_id = node_id if isinstance(node_id, str) else node_id.hex()
        if len(self.node_id) not in (_ID_DIGITS, 56) or set(self.node_id) - set("0123456789abcdef"):
            raise ValueError(f"Invalid node_id {self.node_id!r}: hexadecimal digits are wanted")
        if len(self.node_id) != _ID_DIGITS:
            self.node_id = _UNKNOWN_NODE
        self.soft = soft


class NodeLabelSchedulingStrategy:
    """Place an actor or task by node labels, which tandem.ray does not have."""

    def __init__(self, hard=None, *, soft=None):
        self.hard = hard
        self.soft = soft
