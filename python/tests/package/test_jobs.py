# SPDX-License-Identifier: Apache-2.0
"""Python programs that are submitted with `ray job submit` to a node that `ray start` has started."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

import tandem
from tandem import ray
from tandem.ray import _runtime_env

COMMAND = pathlib.Path(tandem.__file__).parent.parent.parent / "tandem"

PROGRAM = """
import os
import ray  # The program calls no init(), as slime does.

@ray.remote
class Reader:
    def read(self, name):
        return os.environ.get(name)

    def place(self):
        return os.getcwd(), os.getpid()

reader = Reader.remote()
print("actor", ray.get(reader.read.remote("COLOR")), "driver", os.environ["COLOR"])
other = Reader.options(runtime_env={"env_vars": {"COLOR": "red"}}).remote()
print("other", ray.get(other.read.remote("COLOR")), ray.get(other.read.remote("SHAPE")))
directory, pid = ray.get(reader.place.remote())
print("same directory", directory == os.getcwd())
print("context", ray.get_runtime_context().runtime_env["env_vars"]["SHAPE"])
print("pid", pid, flush=True)
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class Node:
    """A head node in a directory for temporary files of its own."""

    def __init__(self, directory):
        self.url = f"http://127.0.0.1:{free_port()}"
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("TANDEM_", "RAY_", "PYTHONPATH"))}
        self.environment |= {"TMPDIR": directory, "PROGRAM": PROGRAM, "URL": self.url, "PYTHONDONTWRITEBYTECODE": "1",
                             "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))}
        self.directory = directory
        port = self.url.rpartition(":")[2]
        self.shell(f"ray start --head --node-ip-address=127.0.0.1 --port={free_port()} --dashboard-port={port} "
                   "--num-cpus 2 --disable-usage-stats")

    def shell(self, script, expected=0):
        """Run a shell script after `tandem env` and return its output."""
        done = subprocess.run(["sh", "-c", f'eval "$({COMMAND} env)"\n' + textwrap.dedent(script)], text=True,
                              env=self.environment, cwd=self.directory, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=100, check=False)
        assert done.returncode == expected, done.stdout
        return done.stdout


@pytest.fixture(scope="module", autouse=True)
def node():
    """A node that the commands of these tests use, instead of the private one of the other files."""
    directory = tempfile.mkdtemp(prefix="tdj-", dir="/tmp")  # A short path, for sockets.
    node = Node(directory)
    yield node
    node.shell("ray stop --force")
    shutil.rmtree(directory)


def wait_for_end(pid):
    deadline = time.monotonic() + 30
    while os.path.exists(f"/proc/{pid}"):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.02)


def test_a_program_uses_actors_with_the_environment_of_its_job(node):
    # The module path of the job leaves Tandem out, as those of launch scripts do.
    output = node.shell("""ray job submit --address=$URL --runtime-env-json='{"env_vars": {
        "COLOR": "blue", "SHAPE": "round", "PYTHONPATH": "/nowhere"}}' -- python3 -c "$PROGRAM" """)
    lines = output.splitlines()
    for line in ("actor blue driver blue", "other red round", "same directory True", "context round"):
        assert line in lines
    assert "' succeeded" in lines[-1]
    wait_for_end(next(line for line in lines if line.startswith("pid ")).split()[1])  # Actors end with their driver.


def test_actors_have_the_working_directory_of_the_job(node):
    os.mkdir(os.path.join(node.directory, "work"))
    with open(os.path.join(node.directory, "work", "module_of_job.py"), "w", encoding="utf-8") as file:
        file.write("VALUE = 7\n")
    output = node.shell("""ray job submit --working-dir work -- python3 -c '
import os, ray
@ray.remote
def place():
    import module_of_job
    return os.path.basename(os.getcwd()), module_of_job.VALUE
print(ray.get(place.remote()))' """)
    assert "('work', 7)" in output.splitlines()


def test_exit_codes_are_those_of_ray(node):
    output = node.shell("ray job submit -- python3 -c 'import ray; ray.init(); raise SystemExit(3)'", expected=1)
    assert "the command ended with exit code 3" in output
    assert "FAILED" in node.shell("ray job list")


def test_commands_of_a_job_reach_its_node(node):
    output = node.shell("ray job submit --submission-id inner -- sh -c 'ray status && ray job list'")
    assert "nodes   1" in output
    assert "inner" in output


def test_stop_ends_the_program_and_its_actors(node):
    node.shell("""ray job submit --submission-id endless --no-wait -- python3 -c '
import os, time, ray
@ray.remote
class Actor:
    def pid(self):
        return os.getpid()
actor = Actor.remote()
print(os.getpid(), ray.get(actor.pid.remote()))
time.sleep(1000)' """)
    deadline = time.monotonic() + 30
    while not (words := node.shell("ray job logs endless").split()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "was stopped" in node.shell("ray job stop endless")
    for pid in words:
        wait_for_end(pid)


def test_init_may_add_to_the_environment_of_the_job_and_not_change_it(monkeypatch):
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", '{"runtime_env": {"env_vars": {"A": "1"}, "working_dir": "/"}}')
    assert _runtime_env.of_driver(None) == {"working_dir": "/", "env_vars": {"A": "1"}}
    assert _runtime_env.of_driver({"env_vars": {"B": "2"}}) == {"working_dir": "/", "env_vars": {"A": "1", "B": "2"}}
    with pytest.raises(ValueError, match="both set A"):
        _runtime_env.of_driver({"env_vars": {"A": "2"}})
    monkeypatch.setenv("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    assert _runtime_env.of_driver({"env_vars": {"A": "2"}})["env_vars"] == {"A": "2"}
    assert not ray.is_initialized()
