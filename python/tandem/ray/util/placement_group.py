# SPDX-License-Identifier: Apache-2.0
"""ray.util.placement_group.

A group is known to the whole cluster by its ID as soon as placement_group() has returned. If its bundles are not free,
the group is pending: it waits for them without a limit of time, also for nodes that join later, and so do the actors
and functions that were given to it.
"""
import warnings

from tandem import _tandem
from tandem.ray import _runtime
from tandem.ray import exceptions

_STRATEGIES = {"PACK": 0, "SPREAD": 1, "STRICT_PACK": 2, "STRICT_SPREAD": 3}
_STATES = {"REMOVING": "REMOVED"}  # States of Ray that have other names than those of Tandem.
_CREATE_MS = 30000
_FIND_MS = 10000
_REMOVE_MS = 30000
_FOREVER_SECONDS = 10 ** 9

_removed = {}  # Rows of placement_group_table() of the groups that this process has removed, by ID.
_ready_function = None  # The remote function behind PlacementGroup.ready().


class PlacementGroupID:
    """The ID of a placement group."""

    def __init__(self, binary):
        self._binary = binary

    @classmethod
    def from_hex(cls, text):
        """Return the ID that has the text as its hex()."""
        return cls(bytes.fromhex(text))

    @classmethod
    def nil(cls):
        """Return the ID of no group."""
        return cls(bytes(16))

    def binary(self):
        """Return the ID as bytes."""
        return self._binary

    def hex(self):
        """Return the ID as hexadecimal digits."""
        return self._binary.hex()

    def is_nil(self):
        """Return whether this is the ID of no group."""
        return not any(self._binary)

    def __eq__(self, other):
        return isinstance(other, PlacementGroupID) and self._binary == other._binary

    def __hash__(self):
        return hash(self._binary)

    def __repr__(self):
        return f"PlacementGroupID({self.hex()})"


class PlacementGroup:
    """A handle to a placement group."""

    def __init__(self, id, bundle_cache=None):
        self.id = id
        self.bundle_cache = bundle_cache
        self._group = None  # The handle of libtandem; looked up when it is first used.

    @staticmethod
    def empty():
        """Return a handle to no group."""
        return PlacementGroup(PlacementGroupID.nil(), [])

    @property
    def is_empty(self):
        """Return whether this handle names no group."""
        return self.id.is_nil()

    @property
    def bundle_specs(self):
        """The resources of each bundle, a list of dicts."""
        if self.bundle_cache is None:
            self.bundle_cache = list(_row_of(self.id.hex())["bundles"].values())
        return [dict(bundle) for bundle in self.bundle_cache]

    @property
    def bundle_count(self):
        """The number of bundles."""
        return len(self.bundle_specs)

    def wait(self, timeout_seconds=30):
        """Return whether the bundles were reserved within the time."""
        seconds = _FOREVER_SECONDS if timeout_seconds is None else timeout_seconds
        return self._handle().wait(int(seconds * 1000))

    def ready(self):
        """Return a reference that is done when the bundles are reserved; its value is this handle."""
        from tandem import ray
        if self.is_empty or self._handle().wait(0):
            return ray.put(self)
        return _make_ready_function().options(scheduling_strategy=_strategy_of(self)).remote(self)

    def _handle(self):
        """Return the _tandem.Group, which may be pending."""
        if self._group is None:
            try:
                self._group = _tandem.find_group_by_id(self.id.hex(), _FIND_MS)
            except ValueError:
                raise ValueError(f"Placement group {self.id.hex()} does not exist.") from None
        return self._group

    def _parts(self):
        """Return what another process needs to find the group."""
        return self.id.hex(), self.bundle_cache

    def __reduce__(self):
        return _load_group, self._parts()

    def __eq__(self, other):
        return isinstance(other, PlacementGroup) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"PlacementGroup({self.id.hex()})"


def _load_group(text_of_id, bundles):
    """Rebuild a pickled handle."""
    return PlacementGroup(PlacementGroupID.from_hex(text_of_id), bundles)


def _strategy_of(group):
    """Return the strategy that puts a function into any bundle of the group."""
    from tandem.ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
    return PlacementGroupSchedulingStrategy(group)


def _make_ready_function():
    """Return the remote function that returns its argument, a group, once the group has room for it."""
    from tandem import ray
    global _ready_function
    if _ready_function is None:
        _ready_function = ray.remote(num_cpus=0)(_return_group)
    return _ready_function


def _return_group(group):
    return group


def _check(bundles, strategy, lifetime):
    """Raise the exceptions that Ray raises for wrong arguments."""
    if not isinstance(bundles, list):
        raise ValueError(f"Placement group bundles must be a list, got {type(bundles)}.")
    if not bundles:
        raise ValueError("The placement group `bundles` argument cannot contain an empty list")
    for bundle in bundles:
        if not isinstance(bundle, dict):
            raise ValueError("Bundles must be a list of resource dictionaries.")
        if not all(isinstance(name, str) and isinstance(amount, (int, float)) and amount >= 0
                   for name, amount in bundle.items()):
            raise ValueError(f"Bundles must map names of resources to amounts. Bundles: {bundles}")
        if not bundle or all(amount == 0 for amount in bundle.values()):
            raise ValueError(f"Bundles cannot be an empty dictionary or resources with only 0 values. Bundles: {bundles}")
    if strategy not in _STRATEGIES:
        raise ValueError(f"Invalid placement group strategy {strategy}. Supported strategies are: "
                         f"{set(_STRATEGIES)}.")
    if lifetime not in (None, "detached"):
        raise ValueError("placement group `lifetime` argument must be either `None` or 'detached'")


def placement_group(bundles, strategy=None, name="", lifetime=None, _soft_target_node_id=None,
                    bundle_label_selector=None, topology_strategy=None):
    """Ask for the bundles and return a handle at once; the group may wait for them."""
    strategy = "PACK" if strategy is None else strategy
    _check(bundles, strategy, lifetime)
    for keyword, value in (("bundle_label_selector", bundle_label_selector), ("topology_strategy", topology_strategy)):
        if value:
            raise NotImplementedError(f"tandem.ray cannot honour {keyword} (feature: placement_group({keyword}=...))")
    _runtime.ensure_initialized()
    bundles = [{resource: float(amount) for resource, amount in bundle.items()} for bundle in bundles]
    try:
        handle = _tandem.create_group(bundles, _STRATEGIES[strategy], name or None, None, lifetime == "detached",
                                      _CREATE_MS)
    except ValueError as error:
        if error._tandem_status == _tandem.E_EXISTS:
            raise exceptions.RaySystemError(str(error)) from None
        raise
    info = handle.describe()
    if info["is_infeasible"]:
        warnings.warn(f"The placement group {info['id']} waits for nodes that can hold it: {info['pending_cause']}",
                      stacklevel=2)
    group = PlacementGroup(PlacementGroupID.from_hex(info["id"]), bundles)
    group._group = handle
    return group


def remove_placement_group(placement_group):
    """Give the resources back and end the actors that use them or wait for them."""
    if not isinstance(placement_group, PlacementGroup):
        raise AssertionError(f"a placement group is wanted, got {type(placement_group)}")
    try:
        row = _row_of(placement_group.id.hex())
        handle = placement_group._handle()
    except ValueError:
        return  # It was removed before.
    placement_group._group = None
    handle.remove(_REMOVE_MS)
    _removed[placement_group.id.hex()] = {**row, "state": "REMOVED"}


def get_placement_group(placement_group_name):
    """Return a handle to the placement group of that name in the name space of this process."""
    if not placement_group_name:
        raise ValueError("Please supply a non-empty value to get_placement_group")
    _runtime.ensure_initialized()
    try:
        handle = _tandem.find_group(None, placement_group_name, _FIND_MS)
    except ValueError:
        raise ValueError(f"Failed to look up placement group with name: {placement_group_name}") from None
    return _group_of(handle)


def _group_of(handle):
    """Return the group of a handle of libtandem."""
    group = PlacementGroup(PlacementGroupID.from_hex(handle.describe()["id"]))
    group._group = handle
    return group


def get_current_placement_group():
    """Return the placement group of this actor or function, or None."""
    if not _tandem.is_running() or not _tandem.describe()["actor_id"]:
        return None
    if _runtime.own_group is not None:
        return _load_group(*_runtime.own_group)
    handle = _tandem.current_group(_FIND_MS)
    return None if handle is None else _group_of(handle)


def _row(group):
    """Return what placement_group_table() says about a group of _tandem.list_groups()."""
    is_placed = group["state"] == "CREATED"
    return {"placement_group_id": group["id"], "name": group["name"],
            "bundles": {index: {name: total for name, (total, _) in amounts.items()}
                        for index, (_, amounts) in enumerate(group["bundles"])},
            "bundles_to_node_id": {index: node for index, (node, _) in enumerate(group["bundles"])},
            "strategy": group["strategy"], "state": _STATES.get(group["state"], group["state"]),
            "stats": {"end_to_end_creation_latency_ms": 0, "scheduling_latency_ms": 0, "scheduling_attempt": 1,
                      "highest_retry_delay_ms": 0, "scheduling_state": "FINISHED" if is_placed else "QUEUED"}}


def _rows():
    """Return {ID: row} of all groups that exist, and of those that this process has removed."""
    return {**_removed, **{group["id"]: _row(group) for group in _tandem.list_groups()}}


def _row_of(text_of_id):
    """Return the row of one group; raises ValueError if there is none."""
    row = _rows().get(text_of_id)
    if row is None:
        raise ValueError(f"Placement group {text_of_id} does not exist.")
    return row


def placement_group_table(placement_group=None):
    """Return what is known of one placement group, or of all."""
    _runtime.ensure_initialized()
    if placement_group is None:
        return _rows()
    text_of_id = placement_group.id.hex()
    row = _rows().get(text_of_id)
    if row is None:  # It existed, since there is a handle to it.
        row = _row({"id": text_of_id, "name": "", "strategy": "", "state": "REMOVED",
                    "bundles": [("", {name: (amount, 0.0) for name, amount in bundle.items()})
                                for bundle in placement_group.bundle_cache or ()]})
    return row
