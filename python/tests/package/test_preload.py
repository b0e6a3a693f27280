# SPDX-License-Identifier: Apache-2.0
"""TANDEM_PYTHON_PRELOAD: modules that the fork server imports for the workers that it forks."""
import os

import pytest

from tandem import ray

PLAIN = """
import os
PID = os.getpid()
"""
THREADED = PLAIN + """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


@ray.remote
class Importer:
    def importing_pid(self, name):
        import importlib
        return importlib.import_module(name).PID, os.getpid(), os.environ.get("OPENBLAS_NUM_THREADS")


@pytest.fixture()
def modules(tmp_path):
    """Return a function that makes a module and returns the environment that preloads it and one that is missing."""
    def make(name, text):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        return {"env_vars": {"PYTHONPATH": str(tmp_path), "TANDEM_PYTHON_PRELOAD": f"missing_module, {name}"}}
    return make


def import_in_actors(environment, name):
    """Return what actors created one after the other reply; the second and later ones may be forked."""
    actors = []
    replies = []
    for _ in range(3):
        actors.append(Importer.options(runtime_env=environment, num_cpus=0).remote())
        replies.append(ray.get(actors[-1].importing_pid.remote(name)))
    return replies


def test_forked_workers_have_the_module(modules):
    _, second, third = import_in_actors(modules("preloaded_plain", PLAIN), "preloaded_plain")
    # The fork server has imported it for both, and they have not.
    assert second[0] == third[0] and second[0] not in (second[1], third[1])
    assert second[2] is None


def test_a_module_with_threads_is_imported_by_each_worker(modules):
    replies = import_in_actors(modules("preloaded_threads", THREADED), "preloaded_threads")
    assert all(importer == worker for importer, worker, _ in replies)
