# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Python package for ctest: run.py PACKAGE_DIR. Exits with 77 if a package is missing.

The interpreter is the one of TANDEM_TEST_PYTHON, or python3: its virtual environment must have the packages.
"""
import os
import pathlib
import subprocess
import sys

PACKAGES = ("pytest", "numpy", "cloudpickle")


def main():
    python = os.environ.get("TANDEM_TEST_PYTHON", sys.executable)
    for package in PACKAGES:
        if subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode != 0:
            print(f"skipped: the Python package {package} is missing")
            return 77
    here = pathlib.Path(__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": sys.argv[1], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(here / "package")], env=environment,
                          check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
