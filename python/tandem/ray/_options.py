# SPDX-License-Identifier: Apache-2.0
"""Options of actors and functions: which there are, and what they are for Tandem."""
import os
import shlex
import shutil
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


_NUMBER = (int, float)
_TYPES = {
    "num_cpus": _NUMBER, "num_gpus": _NUMBER, "memory": _NUMBER, "object_store_memory": _NUMBER, "resources": dict,
    "name": str, "namespace": str, "lifetime": str, "runtime_env": dict, "get_if_exists": bool, "max_restarts": int,
    "label_selector": dict, "max_retries": int, "max_task_retries": int, "max_concurrency": int,
    "max_pending_calls": int,
    "num_returns": (int, str), "_generator_backpressure_num_objects": int, "concurrency_groups": (dict, list)}
_LEAST = {"num_cpus": 0, "num_gpus": 0, "memory": 0, "max_restarts": -1, "max_retries": -1, "max_task_retries": -1,
          "max_concurrency": 1, "max_pending_calls": -1, "num_returns": 0,
          "_generator_backpressure_num_objects": -1}
_NODE_ID_LABEL = "ray.io/node-id"
_KEEP_DEVICES = "RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"
_QUANTUM = 0.0001  # Amounts of resources are counted in steps of this size.


def _check_type(name, value):
    """Raise TypeError for a value of another type than Ray wants."""
    types = _TYPES.get(name)
    is_bool = isinstance(value, bool) and types is not bool
    if types is not None and (is_bool or not isinstance(value, types)):
        raise TypeError(f"The type of keyword '{name}' must be {types}, but received type {type(value)}")
    if name == "scheduling_strategy" and isinstance(value, (int, float, bytes, dict, list, tuple)):
        raise TypeError(f"The type of keyword 'scheduling_strategy' is wrong: {type(value)}")


def _check_value(name, value):
    """Raise ValueError for a value that cannot be."""
    if name in _LEAST and not isinstance(value, str) and value < _LEAST[name]:
        raise ValueError(f"The keyword '{name}' only accepts values of at least {_LEAST[name]}: {value}")
    if name in ("num_cpus", "num_gpus") and 0 < value < _QUANTUM:
        raise ValueError(f"The precision of the fractional quantity of {name} cannot go beyond {_QUANTUM}")
    if name == "num_gpus" and value > 1 and value != int(value):
        raise ValueError(f"{name} quantities >1 must be whole numbers. The specified quantity is {value}")
    if name == "lifetime" and value not in ("detached", "non_detached"):
        raise ValueError("actor `lifetime` argument must be one of 'detached', 'non_detached' and 'None'.")
    if name == "name" and value == "":
        raise ValueError("A name cannot be an empty string.")
    if name == "_generator_backpressure_num_objects" and value == 0:
        raise ValueError("_generator_backpressure_num_objects=0 is not allowed: a generator needs room for one object, "
                         "and -1 is no limit.")
    if name == "retry_exceptions" and not isinstance(value, bool) and not (isinstance(value, (list, tuple)) and all(
            isinstance(cls, type) and issubclass(cls, BaseException) for cls in value)):
        raise ValueError("retry_exceptions must be a boolean or a list of exceptions")
    if name == "resources":
        if "CPU" in value or "GPU" in value:
            raise ValueError("Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' "
                             "keyword")
        if any(amount < 0 for amount in value.values()):
            raise ValueError("The amount of a resource must not be negative")


def check(options, allowed, what):
    """Raise the exceptions that Ray raises for wrong options, and one for options that Tandem cannot honour."""
    for name, value in options.items():
        if name not in allowed:
            raise ValueError(f"Invalid option keyword {name} for {what}s. Valid ones are {sorted(allowed)}.")
        if value is None:
            continue
        if value and name in ("accelerator_type", "fallback_strategy", "enable_tensor_transport", "tensor_transport"):
            raise NotImplementedError(f"tandem.ray cannot honour {name} (feature: {name})")
        _check_type(name, value)
        _check_value(name, value)


def _node_of_label(selector, creation):
    """Use the label with the ID of a node, which all nodes have, as the choice of that node; return the rest."""
    node_id = selector.get(_NODE_ID_LABEL)
    if node_id is None:
        return selector
    creation["scheduling"] = 2
    creation["node_id"] = node_id
    return {name: value for name, value in selector.items() if name != _NODE_ID_LABEL}


def _constrain(selector, creation):
    """Add the conditions of a label selector, such as {"zone": "a", "disk": "!in(hdd,tape)"}."""
    for name, value in _node_of_label(selector, creation).items():
        if not isinstance(value, str):
            raise ValueError(f"The value of label {name!r} in a label selector must be a string, got {type(value)}")
        operator = "!=" if value.startswith("!") else "="
        creation.setdefault("labels", []).append(f"{name}{operator}{value.removeprefix('!').replace(' ', '')}")


def _choose_node(strategy, creation):
    """Add the node or the labels that a scheduling strategy asks for."""
    from tandem.ray.util import scheduling_strategies as strategies
    if isinstance(strategy, strategies.NodeAffinitySchedulingStrategy):
        creation["scheduling"] = 3 if strategy.soft else 2
        creation["node_id"] = strategy.tandem_node_id()
    elif isinstance(strategy, strategies.NodeLabelSchedulingStrategy):
        _constrain({name: condition.to_selector() for name, condition in (strategy.hard or {}).items()}, creation)
        if strategy.soft:
            _runtime.warn_once("tandem.ray does not prefer nodes by labels: NodeLabelSchedulingStrategy(soft=...)")
    elif strategy == "SPREAD":
        creation["scheduling"] = 1
    elif strategy not in (None, "DEFAULT") and not isinstance(strategy, strategies.PlacementGroupSchedulingStrategy):
        raise ValueError(f"Invalid scheduling_strategy: {strategy!r}")


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
    _choose_node(strategy, creation)
    _constrain(options.get("label_selector") or {}, creation)
    if strategy is not None and options.get("placement_group") is not None:
        raise ValueError("Placement groups should be specified via the scheduling_strategy option. The placement_group "
                         "option is deprecated.")
    if group is None and strategy is None and _runtime.own_group is not None and _runtime.own_group_captures:
        creation["group_parts"] = _runtime.own_group
    if isinstance(group, PlacementGroup):
        count = group.bundle_count
        index = -1 if index is None else index
        if index < -1 or index >= count:
            raise ValueError(f"placement group bundle index {index} is invalid. Valid placement group indexes: "
                             f"0-{count}" if count else "the placement group has no bundles")
        _check_bundles(group, index, creation)
        creation["group"] = group._handle()
        creation["group_parts"] = group._parts()
        creation["bundle"] = index
        creation["capture_children"] = 1 if capture else 0


def _check_bundles(group, index, creation):
    """Raise ValueError if no bundle can ever hold the actor."""
    wanted = {"CPU": creation["num_cpus"], "GPU": creation["num_gpus"], **creation["resources"]}
    bundles = group.bundle_specs if index == -1 else [group.bundle_specs[index]]
    if any(bundles) and not any(all(bundle.get(name, 0) >= amount for name, amount in wanted.items())
                                for bundle in bundles):
        raise ValueError(f"Cannot schedule with the placement group because the resource request {wanted} cannot fit "
                         f"into any bundles for the placement group, {bundles}.")


def _module_path(wanted):
    """Return the module path of a worker: what the user wants, or else that of this process, and this package.

    The user's path leaves the package out, as launch scripts set it; the worker needs the package, and its children
    need the module ray where this process has it.
    """
    package_root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if wanted is None:
        folders = own  # The daemon may have been started with another module path.
    else:
        shim = os.path.join(package_root, "tandem", "shim")
        folders = wanted.split(os.pathsep) + [shim] * (shim in own)
    return os.pathsep.join(filter(None, folders + [package_root] * (package_root not in folders)))


def creation_of(options, default_cpus):
    """Return the dict for _tandem.create(), and the variables that the worker sets after it has begun."""
    environment = _runtime_env.merge(options.get("runtime_env"))
    at_start, later = _runtime.split_environment(environment.get("env_vars") or {})
    program, *words = shlex.split(environment.get("py_executable") or "") or [sys.executable]
    at_start = [setting for setting in at_start if not setting.startswith("PYTHONPATH=")]
    at_start.append("PYTHONPATH=" + _module_path((environment.get("env_vars") or {}).get("PYTHONPATH")))
    creation = {
        "num_cpus": default_cpus if options.get("num_cpus") is None else options["num_cpus"],
        "num_gpus": options.get("num_gpus") or 0, "resources": dict(options.get("resources") or {}),
        "memory": options.get("memory") or 0, "max_concurrency": 100000, "program": shutil.which(program) or program,
        "arguments": [*words, "-m", "tandem._worker"], "environment": at_start, "runtime_env": environment}
    variables = {**os.environ, **(environment.get("env_vars") or {})}
    if variables.get(_KEEP_DEVICES, "").lower() in ("1", "true"):
        creation["keep_visible_devices"] = 1
    if environment.get("working_dir"):
        creation["working_directory"] = os.path.abspath(environment["working_dir"])
    _schedule(options, creation)
    return creation, later


def worker_settings(creation, environment):
    """Return what a worker sets before it imports the user's modules."""
    path = [os.getcwd() if entry == "" else entry for entry in sys.path]
    return {"prefix": sys.prefix, "path": path, "environment": environment, "runtime_env": creation["runtime_env"],
            "resources": {name: amount for name, amount in (
                ("CPU", creation["num_cpus"]), ("GPU", creation["num_gpus"]), *creation["resources"].items()) if amount},
            "group": creation.get("group_parts"), "captures": bool(creation.get(
                "capture_children", creation.get("group_parts") is not None))}
