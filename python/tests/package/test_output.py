# SPDX-License-Identifier: Apache-2.0
"""What actors and functions print reaches the driver's terminal, from private nodes and from running ones."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

import tandem

PROGRAM = """
import sys, time
from tandem import ray

@ray.remote
class Plain:
    def __init__(self):
        print("constructed")
    def speak(self):
        print("spoken")
        print("complaint", file=sys.stderr)
    def leave(self):
        print("unfinished", end="", flush=True)
        ray.actor.exit_actor()

@ray.remote
class WithRepr:
    def __repr__(self):
        return "WithRepr(7)"
    def speak(self):
        print("spoken")

@ray.remote
def load(number):
    print("load", number)

@ray.remote
def store(number):
    print("store", number)

ray.init(**OPTIONS)
plain = Plain.options(name="named").remote()
other = WithRepr.remote()
ray.get([plain.speak.remote(), other.speak.remote()])
for number in range(2):
    ray.get(load.remote(number))
    ray.get(store.remote(number))
try:
    ray.get(plain.leave.remote())
except ray.exceptions.RayActorError:
    pass
time.sleep(0.5)
print("driver")
ray.shutdown()
"""
EXPECTED = ["(Plain) constructed", "(Plain) spoken", "(Plain) unfinished", "(WithRepr(7)) spoken", "(load) load 0",
            "(load) load 1", "(store) store 0", "(store) store 1", "driver"]


def daemon_program():
    """Return the path of tandemd, which lies beside the package of a build or inside that of a wheel."""
    package = pathlib.Path(tandem.__file__).parent
    for place in (package / "bin", package.parent.parent):
        if (place / "tandemd").exists():
            return str(place / "tandemd")
    return shutil.which("tandemd")


def lines_of(options, environment=None):
    """Run the program and return the sorted lines of its stdout and stderr, without process IDs."""
    done = subprocess.run([sys.executable, "-c", PROGRAM.replace("OPTIONS", repr(options))], capture_output=True,
                          text=True, timeout=60, check=True, env={**os.environ, **(environment or {})})
    return [sorted(re.sub(r"^\((.*?) pid=\d+\)", r"(\1)", line) for line in text.splitlines())
            for text in (done.stdout, done.stderr)]


@pytest.fixture
def address(tmp_path_factory):
    """The address of a running node."""
    directory = tmp_path_factory.mktemp("node")
    with open(directory / "output", "w", encoding="utf-8") as output:
        daemon = subprocess.Popen([daemon_program(), "--directory", str(directory), "--cpus", "2"], stdout=output,
                                  stderr=output)
    try:
        socket = directory / "tandemd.sock"
        deadline = time.monotonic() + 20
        while not socket.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield f"unix:{socket}"
        assert "spoken" not in (directory / "output").read_text(encoding="utf-8")
    finally:
        daemon.terminate()
        daemon.wait(20)


def test_private_node_prints():
    stdout, stderr = lines_of({"num_cpus": 2})
    assert stdout == EXPECTED
    assert stderr == ["(Plain) complaint"]


def test_private_node_is_silent():
    assert lines_of({"num_cpus": 2, "log_to_driver": False}) == [["driver"], []]


def test_driver_of_a_running_node_prints(address):
    stdout, stderr = lines_of({"address": address})
    assert stdout == EXPECTED
    assert stderr == ["(Plain) complaint"]


def test_driver_of_a_running_node_is_silent(address):
    assert lines_of({"address": address, "log_to_driver": False}) == [["driver"], []]
