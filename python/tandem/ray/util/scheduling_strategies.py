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
        self.soft = soft

    def tandem_node_id(self):
        """Return the ID of the node as Tandem wants it; one that no node has for an ID of another length."""
        return self.node_id if len(self.node_id) == _ID_DIGITS else _UNKNOWN_NODE


class In:
    """The label has one of the values."""

    def __init__(self, *values):
        self.values = list(values)

    def to_selector(self):
        """Return the condition as a label selector has it."""
        return f"in({','.join(self.values)})"


class NotIn:
    """The label has none of the values, or the node does not have it."""

    def __init__(self, *values):
        self.values = list(values)

    def to_selector(self):
        """Return the condition as a label selector has it."""
        return f"!in({','.join(self.values)})"


class Exists:
    """The node has the label."""

    def to_selector(self):
        """Return the condition as a label selector has it."""
        return "exists()"


class DoesNotExist:
    """The node does not have the label."""

    def to_selector(self):
        """Return the condition as a label selector has it."""
        return "!exists()"


class NodeLabelSchedulingStrategy:
    """Place an actor or task on a node whose labels satisfy the conditions."""

    def __init__(self, hard=None, *, soft=None):
        if not hard and not soft:
            raise ValueError("The `hard` and `soft` parameters of NodeLabelSchedulingStrategy cannot both be empty.")
        for conditions in (hard, soft):
            if any(not isinstance(condition, (In, NotIn, Exists, DoesNotExist))
                   for condition in (conditions or {}).values()):
                raise ValueError("A condition on a label is one of In, NotIn, Exists and DoesNotExist.")
        self.hard = hard
        self.soft = soft
