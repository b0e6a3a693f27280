# SPDX-License-Identifier: Apache-2.0
"""A cluster of two nodes for tests of jobs, of which only the first sees the folder of the job."""
import os
import pathlib
import subprocess

import pytest

import tandem

PROGRAMS = pathlib.Path(tandem.__file__).parents[2]
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
# A shell that covers the folder $0 with an empty file system and becomes the command after it.
HIDING = [*NAMESPACE, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
# Variables of whoever runs the tests that would change what the nodes and the job do.
INHERITED = ("TANDEM_ADDRESS", "TANDEM_GPUS", "TANDEM_DEVICE", "RAY_ADDRESS")


class TwoNodes:
    """A Redis and two daemons, which run inside of `with`.

    Attributes: path, a folder that both nodes see, with the folders tmp and notes; folder, where a job has its files and
    which the second node does not see; environment, of the daemons and for the job; address, of the first daemon.
    """

    def __init__(self, path, *, gpus, gpu_bytes, **environment):
        """Make the folders. gpus and gpu_bytes are those of each node; environment has further variables."""
        if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("skipped: mount namespaces are not allowed")
        self.path = path
        self.folder = path / "home" / "job"
        for name in ("home", "tmp", "notes"):
            (path / name).mkdir()
        token = path / "token"
        token.write_bytes(os.urandom(32))
        token.chmod(0o600)
        self.environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
        self.environment.update(TANDEM_TOKEN_FILE=str(token), TMPDIR=str(path / "tmp"), NOTES=str(path / "notes"),
                                **environment)
        self._options = ["--listen", "127.0.0.1", "--gpus", gpus, "--gpu-bytes", gpu_bytes, "--cpus", "8"]
        self._running = []

    def __enter__(self):
        try:
            store = self.path / "redis.sock"
            self._start(["redis-server", "--port", "0", "--unixsocket", store, "--dir", self.path, "--save", ""],
                        "eady to accept")
            node = [PROGRAMS / "tandemd", "--redis", f"unix://{store}", *self._options, "--name"]
            self.address = self._start([*node, "first"], "ready ").split()[2]
            self._start([*HIDING, self.folder.parent, *node, "second"], "ready ")
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_):
        self._stop()

    def _start(self, words, until):
        """Start a process and return the first line that it prints with the text `until`."""
        process = subprocess.Popen([str(word) for word in words], env=self.environment, text=True, cwd=self.path,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._running.append(process)
        for line in process.stdout:
            if until in line:
                return line
        raise RuntimeError(f"{words[0]} has ended before it said {until!r}")

    def _stop(self):
        for process in reversed(self._running):
            process.terminate()
            process.communicate()
        self._running = []

    def run_job(self, *settings, timeout, **more):
        """Run job.yaml of the job's folder with settings and further variables; return the ended process."""
        return subprocess.run([PROGRAMS / "tandem", "run", "job.yaml", "--json", *settings], cwd=self.folder,
                              env={**self.environment, "TANDEM_ADDRESS": self.address, **more}, text=True,
                              capture_output=True, timeout=timeout, check=False)
