#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""api_coverage.py [--markdown]: prints for each name of Ray's API how many tests of the suite show it.

A test names what it shows with @shows("name", ...) or, where it shows a misuse, with @refuses("name", ...).  The
parameter sets of a test count once.  The script fails if a name has fewer than three tests, or none that shows a misuse
and the type of its exception, or if the suite has fewer than 300 test functions.
"""
import ast
import pathlib
import sys
from collections import Counter

TESTS_MIN = 300
TESTS_PER_NAME_MIN = 3
HERE = pathlib.Path(__file__).resolve().parent

# What the suite promises to cover, by theme.  Names without a dot or a verb are features, not identifiers.
NAMES = {
    "starting": [
        "ray.init", "ray.init resources", "ray.init address", "ray.init runtime_env", "namespace", "implicit start",
        "RAY_ADDRESS", "ray.is_initialized", "ray.shutdown", "log_to_driver",
    ],
    "cluster": [
        "ray.nodes", "ray.cluster_resources", "ray.available_resources", "ray.get_gpu_ids", "ray.get_runtime_context",
        "ray.util.get_node_ip_address", "num_cpus",
    ],
    "functions": [
        "remote function", "function options", "num_returns", "retry_exceptions", "max_retries",
    ],
    "actors": [
        "actor class", "actor options", "ActorHandle", "actor method", "ray.method", "max_pending_calls",
        "ray.get_actor", "get_if_exists", "ray.util.list_named_actors", "ray.kill", "ray.actor.exit_actor", "lifetime",
        "detached actor", "max_restarts", "max_task_retries", "graceful end",
    ],
    "concurrency": [
        "generator function", "generator method", "async generator method", "async actor", "threaded actor",
        "concurrency groups", "allow_out_of_order_execution", "ray.cancel", "cancel of an actor's call",
        "cancel of a generator",
    ],
    "references": [
        "ray.get", "ray.put", "ray.wait", "ObjectRef", "ObjectRef.hex", "ObjectRef.future", "await ref",
        "references as arguments", "references in values", "pickled references", "ray.cloudpickle",
    ],
    "exceptions": [
        "the user's own exception", "RayTaskError", "ActorDiedError", "GetTimeoutError", "tree of exceptions",
    ],
    "placement": [
        "placement_group", "PlacementGroup.ready", "PlacementGroup.wait", "PlacementGroup.bundle_specs",
        "PlacementGroup.id", "remove_placement_group", "placement_group_table", "get_placement_group",
        "get_current_placement_group", "detached placement group", "groups of other drivers",
        "PlacementGroupSchedulingStrategy", "NodeAffinitySchedulingStrategy", "scheduling_strategy",
    ],
    "environments": [
        "runtime_env", "runtime_env env_vars", "runtime_env working_dir", "runtime_env py_executable",
    ],
    "utilities": [
        "Queue", "Queue.put", "Queue.get", "Queue.put_nowait", "Queue.get_nowait", "Queue.put_nowait_batch",
        "Queue.get_nowait_batch", "Queue.put_async", "Queue.get_async", "Queue.size", "Queue.shutdown",
        "Queue as argument", "ActorPool", "ActorPool.map", "ActorPool.map_unordered", "ActorPool.submit",
        "ActorPool.get_next", "ActorPool.get_next_unordered", "ActorPool.has_next", "ActorPool.has_free",
        "ActorPool.pop_idle", "ActorPool.push",
    ],
    "private names": [
        "_private.services.get_node_ip_address", "_actor_id", "__ray_call__", "__ray_ready__", "__ray_terminate__",
        "__ray_actor_class__", "_default_options", "_private.worker.global_worker", "_private.state", "names of types",
    ],
}


def marks_of(function):
    """Lists (kind, name) for each name in the @shows and @refuses of a test function."""
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name):
            if decorator.func.id in ("shows", "refuses"):
                for argument in decorator.args:
                    yield decorator.func.id, ast.literal_eval(argument)


def tests_of(path):
    """Lists the test functions of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


def compares_an_exception(function):
    """Whether the body names the type of an exception that it expects."""
    text = ast.unparse(function)
    return "pytest.raises(" in text or "except " in text or "status=1" in text


def main(arguments):
    shown, refused, problems = Counter(), Counter(), []
    count, names_seen = 0, Counter()
    for path in sorted(HERE.glob("test_*.py")):
        for function in tests_of(path):
            count += 1
            names_seen[function.name] += 1
            marks = list(marks_of(function))
            if not marks:
                problems.append(f"{path.name}: {function.name} names nothing that it shows")
            for kind, name in marks:
                (shown if kind == "shows" else refused)[name] += 1
                if kind == "refuses" and not compares_an_exception(function):
                    problems.append(f"{path.name}: {function.name} compares no type of an exception")
    listed = [name for names in NAMES.values() for name in names]
    problems += [f"{name} is not in the list of names" for name in sorted(set(shown + refused) - set(listed))]
    problems += [f"{name} is the name of several tests" for name, times in names_seen.items() if times > 1]
    for theme, names in NAMES.items():
        print(f"\n| {theme} | tests | of these misuses |\n|---|---|---|" if "--markdown" in arguments else f"\n{theme}")
        for name in names:
            total, misuses = shown[name] + refused[name], refused[name]
            row = f"| {name} | {total} | {misuses} |" if "--markdown" in arguments else f"{total:5} {misuses:5}  {name}"
            print(row)
            if total < TESTS_PER_NAME_MIN:
                problems.append(f"{name} has {total} tests, at least {TESTS_PER_NAME_MIN} are needed")
            if misuses == 0:
                problems.append(f"{name} has no test of a misuse")
    print(f"\n{count} test functions, {len(listed)} names")
    if count < TESTS_MIN:
        problems.append(f"{count} test functions, at least {TESTS_MIN} are needed")
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
