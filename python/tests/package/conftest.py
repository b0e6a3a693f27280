# SPDX-License-Identifier: Apache-2.0
"""One private node of four CPUs for all tests of a file."""
import pytest

from tandem import ray


@pytest.fixture(scope="module", autouse=True)
def node():
    ray.init(num_cpus=4, log_to_driver=False)
    yield
    ray.shutdown()
