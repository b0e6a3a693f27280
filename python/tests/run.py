# SPDX-License-Identifier: Apache-2.0
"""Runs tests of the Python package for ctest: run.py PACKAGE_DIR SUITE [NAME].

SUITE is `package`, `job`, `nodes` for jobs on two nodes, `torch` for the tests that need PyTorch or frameworks that use
it, `vllm` for those that need vLLM, or `ray` for the suite that also runs on Ray. NAME chooses the file test_NAME.py.
Exits with 77 if a package is missing. The interpreter is the one of TANDEM_TEST_PYTHON, or python3: its virtual
environment must have the packages.
"""
import os
import pathlib
import shutil
import subprocess
import sys

PACKAGES = ("pytest", "numpy", "cloudpickle")
# Packages that files of a suite need; a file without its packages is skipped as a whole.
SUITE_PACKAGES = {"torch": ("torch", "transformers", "megatron"), "vllm": ("torch", "transformers", "vllm")}
HERE = pathlib.Path(__file__).resolve().parent
# A test that takes longer prints where it hangs.
HANG_SECONDS = 100
# Exit status of pytest for files that were skipped as a whole.
NOTHING_RAN = 5


def can_import(python, package):
    return subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False).returncode == 0


def main():
    package, suite, *names = sys.argv[1:]
    python = shutil.which(os.environ.get("TANDEM_TEST_PYTHON", sys.executable)) or "python3"
    for needed in PACKAGES:
        if not can_import(python, needed):
            print(f"skipped: the Python package {needed} is missing (apt: python3-{needed})")
            return 77
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("TANDEM_ADDRESS", None)
    command = [python]
    if suite == "ray":
        # `tandem python` runs the python3 of the path.
        environment["PATH"] = os.pathsep.join([os.path.dirname(os.path.abspath(python)), os.environ["PATH"]])
        command = [str(pathlib.Path(package).parent / "tandem"), "python"]
    else:
        environment["PYTHONPATH"] = package
    folder = HERE / suite
    tests = [folder / f"test_{name}.py" for name in names] or [folder]
    status = subprocess.run([*command, "-m", "pytest", "-q", "-rs", "--tb=short", "-p", "no:cacheprovider",
                             "--confcutdir", folder, "-o", f"faulthandler_timeout={HANG_SECONDS}", *tests],
                            env=environment, cwd=folder, check=False).returncode
    if status != NOTHING_RAN:
        return status
    missing = [needed for needed in SUITE_PACKAGES.get(suite, ()) if not can_import(python, needed)]
    print(f"skipped: the Python package {missing[0] if missing else 'that the tests need'} is missing")
    return 77


if __name__ == "__main__":
    sys.exit(main())
