# SPDX-License-Identifier: Apache-2.0
"""The module `ray` of `tandem python`."""
import os
import pathlib
import subprocess
import sys

import cloudpickle
import tandem


def test_submodules_are_found_in_a_bare_interpreter():
    """Nothing else has imported the modules that the finder needs, as in an environment without site packages."""
    package = pathlib.Path(tandem.__file__).parent
    paths = [package / "shim", package.parent, pathlib.Path(cloudpickle.__file__).parent.parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    program = "import ray.util.queue; from tandem.ray.util import queue; assert ray.util.queue is queue"
    subprocess.run([sys.executable, "-S", "-c", program], env=environment, check=True, timeout=60)
