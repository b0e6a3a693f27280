# SPDX-License-Identifier: Apache-2.0
"""Options of actors and functions: which there are, and what they are for Tandem."""
import os
import sys

from tandem.ray import _runtime
from tandem.ray import _runtime_env

_COMMON = frozenset((
    "accelerator_type", "memory", "name", "num_cpus", "num_gpus", "object_store_memory", "placement_group",
    "placement_group_bundle_index", "placement_group_capture_child_tasks", "resources", "runtime_env",
    "scheduling_strategy", "_metadata", "enable_task_events", "label_selector", "_labels", "fallback_strategy"))
ACTOR_OPTIONS = _COMMON | frozenset((
    "concurrency_groups", "lifetime", "max_concurrency", "max_restarts", "max_task_retries", "max_pending_calls",
    "namespace", "get_if_exists", "allow_out_of_order_execution", "enable_tensor_transport"))
FUNCTION_OPTIONS = _COMMON | frozenset((
    "max_calls", "max_retries", "num_returns", "retry_exceptions", "_generator_backpressure_num_objects"))
METHOD_OPTIONS = frozenset((
    "num_returns", "concurrency_group", "max_task_retries", "retry_exceptions", "name", "enable_task_events",
    "_generator_backpressure_num_objects", "tensor_transport"))


def check(options, allowed, what):
    """Raise ValueError for an option that Ray does not have, and an exception for one that Tandem cannot honour."""
    for name, value in options.items():
        if name not in allowed:
            raise ValueError(f"Invalid option keyword {name} for {what}s. Valid ones are {sorted(allowed)}.")
        if value and name in ("accelerator_type", "label_selector", "fallback_strategy", "retry_exceptions",
                              "enable_tensor_transport", "tensor_transport"):
            raise NotImplementedError(f"tandem.ray cannot honour {name} (feature: {name})")
    for name in ("num_cpus", "num_gpus", "memory"):
        if options.get(name) is not None and options[name] < 0:
            raise ValueError(f"The value of {name} must not be negative: {options[name]}")
    if options.get("lifetime") not in (None, "detached", "non_detached"):
        raise ValueError("actor `lifetime` argument must be one of 'detached', 'non_detached' and 'None'.")
    if options.get("max_restarts") is not None and options["max_restarts"] < -1:
        raise ValueError("The keyword 'max_restarts' only accepts -1, 0 or a positive integer")
    if "CPU" in (options.get("resources") or {}) or "GPU" in (options.get("resources") or {}):
        raise ValueError("Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword")


def _schedule(options, creation):
    """Add the placement: a placement group, a node, or SPREAD."""
    from tandem.ray.util.placement_group import PlacementGroup
    from tandem.ray.util import scheduling_strategies as strategies
    strategy = options.get("scheduling_strategy")
    group, index, capture = (options.get("placement_group"), options.get("placement_group_bundle_index", -1),
                             options.get("placement_group_capture_child_tasks"))
    if isinstance(strategy, strategies.PlacementGroupSchedulingStrategy):
        group, index, capture = (strategy.placement_group, strategy.placement_group_bundle_index,
                                 strategy.placement_group_capture_child_tasks)
    elif isinstance(strategy, strategies.NodeAffinitySchedulingStrategy):
        creation["scheduling"] = 3 if strategy.soft else 2
        creation["node_id"] = strategy.node_id
    elif isinstance(strategy, strategies.NodeLabelSchedulingStrategy):
        raise NotImplementedError("tandem.ray has no node labels (feature: NodeLabelSchedulingStrategy)")
    elif strategy == "SPREAD":
        creation["scheduling"] = 1
    elif strategy not in (None, "DEFAULT"):
        raise ValueError(f"Invalid scheduling_strategy: {strategy!r}")
    if isinstance(group, PlacementGroup):
        count = group.bundle_count
        index = -1 if index is None else index
        if index < -1 or index >= count:
            raise ValueError(f"placement group bundle index {index} is invalid. Valid placement group indexes: "
                             f"0-{count}" if count else "the placement group has no bundles")
        creation["group"] = group._handle()
        creation["bundle"] = index
        creation["capture_children"] = 1 if capture else 0


def creation_of(options, default_cpus):
    """Return the dict for _tandem.create(), and the variables that the worker sets after it has begun."""
    environment = _runtime_env.merge(options.get("runtime_env"))
    at_start, later = _runtime.split_environment(environment.get("env_vars") or {})
    python = environment.get("py_executable") or sys.executable
    package_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not any(setting.startswith("PYTHONPATH=") for setting in at_start):
        # The daemon may have been started with another module path.
        own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        at_start.append("PYTHONPATH=" + os.pathsep.join(filter(None, own + [package_root] * (package_root not in own))))
    creation = {
        "num_cpus": default_cpus if options.get("num_cpus") is None else options["num_cpus"],
        "num_gpus": options.get("num_gpus") or 0, "resources": dict(options.get("resources") or {}),
        "memory": options.get("memory") or 0, "max_concurrency": 100000, "program": python,
        "arguments": ["-m", "tandem._worker"], "environment": at_start}
    if environment.get("working_dir"):
        creation["working_directory"] = os.path.abspath(environment["working_dir"])
    _schedule(options, creation)
    return creation, later


def worker_settings(environment):
    """Return what a worker sets before it imports the user's modules."""
    path = [os.getcwd() if entry == "" else entry for entry in sys.path]
    return {"prefix": sys.prefix, "path": path, "environment": environment, "runtime_env": _runtime.job_runtime_env}
