# SPDX-License-Identifier: Apache-2.0
"""started_nodes.py - a test with three machines of network.py, on which `tandem start` starts nodes."""
import os
import pathlib
import subprocess
import sys
import unittest

import network

HEAD_PORT = 6379


def enter():
    """Returns (build folder, directory for the test) inside of the namespaces, and gives them to the tests."""
    StartedNodes.build = pathlib.Path(sys.argv[1]).resolve()
    StartedNodes.directory = network.enter()
    return StartedNodes.build, StartedNodes.directory


class StartedNodes(unittest.TestCase):
    """Machines n1 to n3; nodes that a test starts on them end with the test."""

    build = None  # The build folder.
    directory = None  # A directory in memory, which the namespaces share.

    @classmethod
    def setUpClass(cls):
        cls.network = network.Network(stores=("s1",))

    @classmethod
    def tearDownClass(cls):
        cls.network.end()

    def setUp(self):
        self.token = self.directory / "token"
        self.token.write_bytes(bytes(range(100, 132)))
        self.token.chmod(0o600)

    def tearDown(self):
        for node in ("n1", "n2", "n3"):
            self.on(node, "stop", "--force")
        self.network.heal()

    def environment(self, node, token):
        directory = self.directory / node
        directory.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        environment["TMPDIR"] = str(directory)
        if token:
            environment["TANDEM_TOKEN_FILE"] = str(token)
        return environment

    def on(self, node, *words, token=None, timeout=60, binary="tandem"):
        command = self.network.machines[node].words(self.build / binary, *words)
        return subprocess.run(command, env=self.environment(node, token or self.token), capture_output=True, text=True,
                              timeout=timeout, check=False)

    def start_head(self, *words):
        done = self.on("n1", "start", "--head", "--node-ip-address", self.network.machines["n1"].address,
                       "--num-cpus", "2", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return f"{self.network.machines['n1'].address}:{HEAD_PORT}"

    def join(self, node, head, *words, token=None):
        return self.on(node, "start", "--address", head, "--node-ip-address", self.network.machines[node].address,
                       "--num-cpus", "2", *words, token=token)
