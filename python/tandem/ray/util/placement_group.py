# SPDX-License-Identifier: Apache-2.0
"""ray.util.placement_group.

placement_group() returns at once; a thread of its own reserves the bundles. Each group has a name in the cluster, by
which other processes find it.
"""
import asyncio
import os
import threading

from tandem import _tandem
from tandem.ray import _runtime
from tandem.ray import exceptions

_STRATEGIES = {"PACK": 0, "SPREAD": 1, "STRICT_PACK": 2, "STRICT_SPREAD": 3}
_NAME_PREFIX = "tandem-group-"
_TRY_MS = 500
_FIND_MS = 10000

_READY_SECONDS = 0.1  # How long ready() waits before it asks another process to make a reference.

_groups = {}
_promises_lock = threading.Lock()
_promises_of = {}


class _Promises:
    """An actor whose calls of wait() are replied to when fulfil() is called."""

    def __init__(self):
        self.futures = {}

    def _future(self, name):
        return self.futures.setdefault(name, asyncio.get_running_loop().create_future())

    async def wait(self, name):
        return await asyncio.shield(self._future(name))

    async def fulfil(self, name, value, failure):
        future = self._future(name)
        if not future.done() and failure is None:
            future.set_result(value)
        elif not future.done():
            future.set_exception(failure)


def _promises():
    """Return the actor for references of this process that are done later."""
    from tandem import ray
    job = _tandem.describe()["address"], _tandem.describe()["job_id"], os.getpid()
    with _promises_lock:
        if job not in _promises_of:
            _promises_of.clear()
            _promises_of[job] = ray.remote(_Promises).options(num_cpus=0).remote()
        return _promises_of[job]


class PlacementGroupID:
    """The ID of a placement group."""

    def __init__(self, text):
        self._text = text

    def hex(self):
        """Return the ID as hexadecimal digits."""
        return self._text

    def __eq__(self, other):
        return isinstance(other, PlacementGroupID) and self._text == other._text

    def __hash__(self):
        return hash(self._text)


class PlacementGroup:
    """A handle to a placement group."""

    def __init__(self, name, bundles, strategy="PACK", namespace=None, text_of_id=None):
        self._is_found = text_of_id is None
        self._id = PlacementGroupID(text_of_id or name.encode().hex())
        self._name = name
        self._bundles = bundles
        self._strategy = strategy
        self._namespace = namespace
        self._group = None
        self._error = None
        self._is_removed = False
        self._is_decided = threading.Event()

    @property
    def id(self):
        """The ID of the placement group."""
        return self._id

    @property
    def bundle_specs(self):
        """The resources of each bundle, a list of dicts."""
        return [dict(bundle) for bundle in self._bundles]

    @property
    def bundle_count(self):
        """The number of bundles."""
        return len(self._bundles)

    def _reserve(self, name, detached):
        """Reserve the bundles; runs on a thread of its own until it is decided."""
        while not self._is_removed and _tandem.is_running():
            try:
                self._group = _tandem.create_group(self._bundles, _STRATEGIES[self._strategy], name, self._namespace,
                                                   detached, _TRY_MS)
                break
            except exceptions.GetTimeoutError:
                continue
            except exceptions.ActorUnschedulableError:
                continue  # A node that joins later may have the resources, as in Ray.
            except Exception as error:
                self._error = error
                break
        self._is_decided.set()

    def wait(self, timeout_seconds=30):
        """Return whether the bundles were reserved within the time."""
        return self._wait(timeout_seconds)

    def _wait(self, timeout_seconds):
        if self._group is None and self._is_decided.is_set() and self._error is None and not self._is_removed:
            self._group = _tandem.find_group(self._namespace, self._name, _FIND_MS)
        if not self._is_decided.wait(timeout_seconds):
            return False
        if self._error is not None:
            raise self._error
        return self._group is not None

    def ready(self):
        """Return a reference that is done when the bundles are reserved; its value is this handle."""
        from tandem import ray
        if self._is_decided.wait(_READY_SECONDS):
            self._wait(0)
            return ray.put(self)
        ref = _promises().wait.remote(self._name)
        threading.Thread(target=self._fulfil, name="tandem-group-ready", daemon=True).start()
        return ref

    def _fulfil(self):
        """Let the reference of ready() be done once the bundles are reserved; runs on a thread of its own."""
        self._is_decided.wait()
        if _tandem.is_running():
            failure = None if self._group is not None else self._error or ValueError("the placement group was removed")
            _promises().fulfil.remote(self._name, self if failure is None else None, failure)

    def _handle(self):
        """Return the _tandem.Group; waits until the bundles are reserved."""
        if self._is_removed:
            raise ValueError("the placement group was removed")
        self._wait(None)
        return self._group

    def __reduce__(self):
        return _load_group, self._parts()

    def _parts(self):
        """Return what another process needs to find the group."""
        return (self._name, self._bundles, self._strategy, self._namespace,
                None if self._is_found else self._id.hex())

    def __eq__(self, other):
        # A group that was found by its name has an ID that is made of the name.
        return isinstance(other, PlacementGroup) and self._name == other._name and (
            self._id == other._id or self._is_found or other._is_found)

    def __hash__(self):
        return hash(self._name)

    def __repr__(self):
        return f"PlacementGroup({self.id.hex()})"


def _load_group(name, bundles, strategy, namespace, text_of_id):
    """Rebuild a pickled handle; the group is looked up when it is used."""
    group = _groups.get(name)
    if group is None or (text_of_id is not None and group.id.hex() != text_of_id):
        group = PlacementGroup(name, bundles, strategy, namespace, text_of_id)
        group._is_decided.set()
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


def placement_group(bundles, strategy="PACK", name="", lifetime=None, _soft_target_node_id=None,
                    bundle_label_selector=None):
    """Reserve the bundles and return a handle at once."""
    _check(bundles, strategy, lifetime)
    _runtime.ensure_initialized()
    text_of_id = os.urandom(18).hex()
    name = name or _NAME_PREFIX + text_of_id
    bundles = [{resource: float(amount) for resource, amount in bundle.items()} for bundle in bundles]
    group = PlacementGroup(name, bundles, strategy, _tandem.describe()["namespace"],
                           text_of_id)
    _groups[name] = group
    threading.Thread(target=group._reserve, args=(name, lifetime == "detached"), name="tandem-group",
                     daemon=True).start()
    return group


def remove_placement_group(group):
    """Give the resources back and kill the actors that use them."""
    if not isinstance(group, PlacementGroup):
        raise AssertionError(f"a placement group is wanted, got {type(group)}")
    group._is_removed = True
    if not group._is_decided.wait(10 * _TRY_MS / 1000):
        return
    if group._group is None and group._error is None:
        try:
            group._wait(None)
        except ValueError:
            return
    if group._group is not None:
        try:
            group._group.remove(30000)
        except exceptions.RaySystemError:
            pass  # It was removed before.
        group._group = None
    _groups.pop(group._name, None)


def get_placement_group(name):
    """Return a handle to the placement group of that name."""
    if not name:
        raise ValueError("Please supply a non-empty value to get_placement_group")
    _runtime.ensure_initialized()
    group = _groups.get(name)
    if group is not None:
        return group
    try:
        handle = _tandem.find_group(None, name, _FIND_MS)
    except ValueError:
        raise ValueError(f"Failed to look up placement group with name: {name}") from None
    group = PlacementGroup(name, [{} for _ in handle.bundles()])
    group._group = handle
    group._is_decided.set()
    return group


def get_current_placement_group():
    """Return the placement group of this actor, or None."""
    if not _tandem.is_running() or not _tandem.describe()["actor_id"]:
        return None
    handle = _tandem.current_group(_FIND_MS)
    if handle is None:
        return None
    if _runtime.own_group is not None:
        return _load_group(*_runtime.own_group)
    group = PlacementGroup("", [{} for _ in handle.bundles()])
    group._group = handle
    group._is_decided.set()
    return group


def _row(group):
    """Return what placement_group_table() says about a group."""
    if group._group is None and group._error is None and group._is_decided.is_set() and not group._is_removed:
        try:
            group._wait(0)  # Another process made it.
        except ValueError:
            group._is_removed = True
    state = "REMOVED" if group._is_removed else "CREATED" if group._group is not None else "PENDING"
    placed = group._group.bundles() if group._group is not None else []
    return {"placement_group_id": group.id.hex(),
            "name": "" if group._name.startswith(_NAME_PREFIX) else group._name,
            "bundles": dict(enumerate(group.bundle_specs)),
            "bundles_to_node_id": {index: node for index, (node, _) in enumerate(placed)},
            "strategy": group._strategy, "state": state,
            "stats": {"end_to_end_creation_latency_ms": 0, "scheduling_latency_ms": 0, "scheduling_attempt": 1,
                      "highest_retry_delay_ms": 0, "scheduling_state": "FINISHED" if placed else "QUEUED"}}


def placement_group_table(placement_group=None):
    """Return what is known of one placement group, or of all that this process made."""
    _runtime.ensure_initialized()
    if placement_group is not None:
        return _row(placement_group)
    return {group.id.hex(): _row(group) for group in _groups.values()}
