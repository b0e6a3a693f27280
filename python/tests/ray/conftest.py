# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the suite that runs against real Ray and against Tandem.

Each file starts one cluster, which all tests of the file share.  A test that needs another cluster starts it itself.
"""
import os
import pathlib

# Workers unpickle classes of these test files by name, so this folder must be on their path.
HERE = str(pathlib.Path(__file__).resolve().parent)
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [HERE, os.environ.get("PYTHONPATH")]))
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# The suite starts its own clusters, also where the shell names one.
for variable in ("RAY_ADDRESS", "RAY_NAMESPACE", "RAY_RUNTIME_ENV", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
    os.environ.pop(variable, None)

import pytest  # noqa: E402
import ray  # noqa: E402

from suite import CLUSTER, Echo, Gate  # noqa: E402


RUNS_ON_TANDEM = "tandem" in ray.init.__module__


def allowed_differences():
    """Return {name of a test: reason} of the tests that may differ from Ray."""
    found = {}
    for line in pathlib.Path(HERE, "differences.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition(" | ")
            found[name] = reason
    return found


def pytest_collection_modifyitems(items):
    """On Tandem a test that may differ has to differ: one that passes is an error, so that the list only shrinks."""
    differences = allowed_differences() if RUNS_ON_TANDEM else {}
    for item in items:
        reason = differences.get(f"{item.path.name}: {item.name}")
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))


def pytest_configure(config):
    config.addinivalue_line("markers", "shows(*names): the test shows what these names of the API do")
    config.addinivalue_line("markers", "refuses(*names): the test shows which exception a misuse of these names raises")


@pytest.fixture(scope="module")
def cluster():
    """One node with 4 CPUs, 4 logical GPUs and 2 widgets."""
    ray.init(**CLUSTER)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def echo(cluster):
    """An actor without state that all tests of a file may share."""
    return Echo.remote()


@pytest.fixture
def gate(cluster):
    """A closed gate of this test alone."""
    return Gate.remote()
