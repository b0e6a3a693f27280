# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of both sides, requests rounds, measures their memory, and ends all of them."""
import ctypes
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / os.environ.get("TANDEM_PRESET", "release")
OURS = BUILD / "bench" / "against_ray"
RECORDS = BUILD / "bench" / "records"
LOG = ROOT / "build" / "against_ray" / "log"
PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 10


class Failed(Exception):
    """A side has ended or reported an error."""


def adopt_orphans():
    """Makes this process the reaper of orphaned descendants, so that it can find and end them."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("prctl")


def descendants(root=None):
    """Returns all live descendants of this process or of `root`."""
    children = {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
        except OSError:
            continue  # The process has ended meanwhile.
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = []
    waiting = [root or os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def end_all():
    """Ends every descendant of this process: first with SIGTERM, then with SIGKILL."""
    for number, seconds in ((signal.SIGTERM, END_SECONDS), (signal.SIGKILL, END_SECONDS)):
        deadline = time.monotonic() + seconds
        for pid in descendants():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        while descendants() and time.monotonic() < deadline:
            time.sleep(0.05)
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass


def command_line(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    return b" ".join(words).decode(errors="replace")


def program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def pss_mib(pid):
    for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise Failed(f"no Pss of process {pid}")


class Side:
    """A process that reads lines with a round's name and seconds and replies with lines of numbers."""

    def __init__(self, name, command, environment, greeting=None):
        self.name = name
        LOG.parent.mkdir(parents=True, exist_ok=True)
        with LOG.open("ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=log, text=True, env=environment, cwd=ROOT)
        if greeting is not None:
            self.read_line()

    def read_line(self):
        line = self.process.stdout.readline()
        if line == "":
            raise Failed(f"{self.name} has ended; {LOG} says why")
        return line

    def ask(self, round_name, seconds):
        try:
            self.process.stdin.write(f"{round_name} {seconds}\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise Failed(f"{self.name} has ended; {LOG} says why") from error
        return [float(number) for number in self.read_line().split()]

    def end(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self.process.wait(2 * END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Ray:
    """A Ray cluster in a temporary directory, without usage reports."""

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="against-ray-")  # The path must be short, because it contains sockets.
        self.environment = {
            **os.environ, "HOME": self.directory, "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_TMPDIR": self.directory}
        self.environment.pop("RAY_ADDRESS", None)

    def side(self, port=None):
        environment = dict(self.environment)
        if port is not None:
            environment["AGAINST_RAY_ADDRESS"] = f"127.0.0.1:{port}"
        return Side("ray", [sys.executable, HERE / "ray_side.py", self.directory], environment,
                    greeting="imported")

    def start_head(self, port):
        """Starts Ray and returns when it reports that it is ready."""
        with LOG.open("ab") as log:
            done = subprocess.run(
                [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", f"--port={port}",
                 "--node-ip-address=127.0.0.1", "--include-dashboard=false",
                 "--disable-usage-stats", f"--temp-dir={self.directory}",
                 f"--object-store-memory={2 << 30}"],
                stdout=log, stderr=log, env=self.environment, cwd=ROOT, check=False)
        if done.returncode != 0:
            raise Failed(f"ray start has failed; {LOG} says why")

    def remove(self):
        shutil.rmtree(self.directory, ignore_errors=True)


def tandem_side():
    environment = dict(os.environ)
    environment.pop("TANDEM_ADDRESS", None)
    return Side("tandem", [OURS], environment)


def python_side():
    """Returns the side of the program in Python on Tandem."""
    environment = dict(os.environ)
    for name in ("TANDEM_ADDRESS", "RAY_ADDRESS"):
        environment.pop(name, None)
    # `tandem python` runs the python3 of the path, which is to be this one.
    environment["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), environment["PATH"]])
    return Side("tandem-python", [BUILD / "tandem", "python", HERE / "ray_side.py", tempfile.gettempdir()], environment,
                greeting="imported")


def raw_side():
    return Side("raw", [OURS, "raw"], dict(os.environ))


def records_side():
    return Side("tandem", [RECORDS], dict(os.environ))
