# SPDX-License-Identifier: Apache-2.0
"""The commands `ray start`, `ray status` and `ray stop`, and programs that join the node that they start."""
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap

import pytest

import tandem

PACKAGE = pathlib.Path(tandem.__file__).parent.parent
COMMAND = PACKAGE.parent / "tandem"
INHERITED = ("TANDEM_ADDRESS", "TANDEM_TOKEN_FILE", "TANDEM_REDIS", "TANDEM_GPUS", "TANDEM_DEVICE", "RAY_ADDRESS")


@pytest.fixture(scope="module", autouse=True)
def node():
    """Replace the private node of the other files: these tests start their own."""


class Machine:
    """A directory for temporary files that stands for a machine, and a port for its head node."""

    def __init__(self, directory):
        self.directory = directory
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
        self.environment |= {"TMPDIR": directory, "PORT": str(self.port), "PYTHONDONTWRITEBYTECODE": "1",
                             "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))}

    def shell(self, script, *wrapper, **variables):
        """Run a shell script after `tandem env` and return (exit status, output)."""
        script = f'eval "$({COMMAND} env)"\n' + textwrap.dedent(script)
        done = subprocess.run([*wrapper, "sh", "-c", script], env={**self.environment, **variables}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
        return done.returncode, done.stdout

    def python(self, program, **variables):
        """Run a Python program and return its output."""
        status, output = self.shell('exec python3 -c "$PROGRAM"', PROGRAM=textwrap.dedent(program), **variables)
        assert status == 0, output
        return output


@pytest.fixture
def machine():
    directory = tempfile.mkdtemp(prefix="tdp-", dir="/tmp")  # A short path, for sockets.
    machine = Machine(directory)
    yield machine
    machine.shell("ray stop --force")
    shutil.rmtree(directory)


START = "ray start --head --node-ip-address=127.0.0.1 --port=$PORT --num-cpus 2 --num-gpus=2 --disable-usage-stats"
COUNT = """
    import ray
    ray.init()
    print(len(ray.nodes()), ray.cluster_resources()["GPU"])
    """


def test_options_of_ray_are_accepted_silently_or_with_one_warning(machine):
    status, output = machine.shell(
        START + " --dashboard-host=0.0.0.0 --dashboard-port 0 --temp-dir=/tmp/ray --include-dashboard=false "
                "--min-worker-port 10002 --no-monitor")
    assert status == 0, output
    warnings = [line for line in output.splitlines() if "warning" in line]
    assert len(warnings) == 2
    assert "--min-worker-port" in warnings[0] and "--no-monitor" in warnings[1]
    status, output = machine.shell("ray status")
    assert status == 0 and "nodes   1" in output


@pytest.mark.parametrize("words", ["start --haed", "start --head --num-gpus", "start --head=yes", "start --head extra",
                                   "start", "stop --all", "status --address", "crash"])
def test_wrong_command_lines_exit_with_2(machine, words):
    status, output = machine.shell("ray " + words)
    assert status == 2, output


def test_second_start_fails_and_names_the_remedy(machine):
    assert machine.shell(START)[0] == 0
    status, output = machine.shell(START)
    assert status == 1
    assert "tandem stop" in output


def test_stop_succeeds_when_nothing_runs(machine):
    assert machine.shell("ray stop")[0] == 0
    assert machine.shell("ray stop --force")[0] == 0
    assert machine.shell("ray stop -f -g 3")[0] == 0
    assert machine.shell("ray status")[0] == 1


@pytest.mark.parametrize("variables", [{}, {"RAY_ADDRESS": "auto"}, {"RAY_ADDRESS": "127.0.0.1:PORT"}])
def test_init_joins_the_started_node(machine, variables):
    assert machine.shell(START)[0] == 0
    variables = {name: value.replace("PORT", str(machine.port)) for name, value in variables.items()}
    assert machine.python(COUNT, **variables) == "1 2.0\n"
    implicit = COUNT.replace("ray.init()", "ray.put(1)")
    assert machine.python(implicit, **variables) == "1 2.0\n"


def test_init_with_address_joins_the_started_node(machine):
    assert machine.shell(START)[0] == 0
    for address in ("auto", f"127.0.0.1:{machine.port}", f"localhost:{machine.port}"):
        assert machine.python(COUNT.replace("init()", f'init("{address}")')) == "1 2.0\n"
    local = COUNT.replace("init()", 'init("local", num_gpus=1)')
    assert machine.python(local) == "1 1.0\n"


def test_init_refuses_resources_of_a_running_cluster(machine):
    assert machine.shell(START)[0] == 0
    output = machine.python("""
        import ray
        try:
            ray.init(num_cpus=1)
        except ValueError as error:
            print("refused", 'address="local"' in str(error))
        """)
    assert output == "refused True\n"


def test_init_auto_fails_without_a_node(machine):
    output = machine.python("""
        import ray
        try:
            ray.init("auto")
        except ConnectionError as error:
            print(error)
        """)
    assert "tandem start" in output


# What launch scripts do before and after they start a cluster.
RUN_SCRIPT = """
    pkill -9 sglang
    pkill -9 slime
    ray stop --force
    pkill -9 ray
    pkill -9 python
    pkill -9 redis
    ray start --head --node-ip-address=127.0.0.1 --port=$PORT --num-gpus=2 --disable-usage-stats || exit 1
    for name in ray python sglang slime redis; do pkill -9 $name && exit 2; done
    ray status || exit 3
    python3 -c "$PROGRAM" || exit 4
    pkill -9 python
    python3 -c "$PROGRAM" again || exit 5
    """

# Leaves actors that hold all GPUs, of a fork server. Their names must be free in a new cluster.
PROGRAM = """
import os, sys, ray
ray.init("auto")
@ray.remote(num_gpus=0 if "again" in sys.argv else 0.5)
class Actor:
    def pid(self):
        return os.getpid()
names = [f"actor {i} {sys.argv[1:]}" for i in range(4)]
actors = [Actor.options(name=name, lifetime="detached").remote() for name in names]
print(len(set(ray.get([actor.pid.remote() for actor in actors], timeout=60))), len(ray.nodes()))
"""


def test_run_script_starts_a_clean_cluster_each_time(machine):
    # Signals by name must reach only the processes of this test.
    namespace = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("PID namespaces are forbidden here")
    status, output = machine.shell("( eval \"$RUN\" ) && ( eval \"$RUN\" ); code=$?; ray stop --force; exit $code",
                                   *namespace, PROGRAM=PROGRAM, RUN=textwrap.dedent(RUN_SCRIPT))
    assert status == 0, output
    assert output.count("4 1\n") == 4, output
