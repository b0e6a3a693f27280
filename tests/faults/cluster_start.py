#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cluster_start.py BUILD - three machines follow docs/cluster.md, and mistakes on the way are named within 5 s.

The machines are network namespaces with one link each (network.py).  What passes between them is recorded."""
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import network

NAMED_SECONDS = 5  # A mistake must be named within this time.
PORTS = (7100, 7119)
ETH_P_ALL = 3
PACKET_OUTGOING = 4


class Recorder:
    """Records every packet on the router's links, and notes the TCP ports to which connections are opened."""

    def __init__(self):
        self.line = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.line.settimeout(0.1)
        self.bytes = bytearray()
        self.ports = set()
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.ending.is_set():
            try:
                packet, origin = self.line.recvfrom(65536)
            except socket.timeout:
                continue
            if origin[2] == PACKET_OUTGOING or len(packet) < 40 or packet[0] >> 4 != 4 or packet[9] != 6:
                continue
            tcp = packet[(packet[0] & 15) * 4:]
            if tcp[13] & 0x12 == 0x02:  # SYN without ACK
                self.ports.add(struct.unpack("!H", tcp[2:4])[0])
            self.bytes += tcp[(tcp[12] >> 4) * 4:]

    def end(self):
        time.sleep(0.2)
        self.ending.set()
        self.thread.join()
        self.line.close()


class Start(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = network.Network(stores=("s1",))

    @classmethod
    def tearDownClass(cls):
        cls.network.end()

    def setUp(self):
        self.token = DIRECTORY / "token"
        self.token.write_bytes(bytes(range(100, 132)))
        self.token.chmod(0o600)

    def tearDown(self):
        for node in ("n1", "n2", "n3"):
            self.on(node, "stop", "--force")
        self.network.heal()

    def environment(self, node, token):
        directory = DIRECTORY / node
        directory.mkdir(exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        environment["TMPDIR"] = str(directory)
        if token:
            environment["TANDEM_TOKEN_FILE"] = str(token)
        return environment

    def on(self, node, *words, token=None, timeout=60, binary="tandem"):
        machine = self.network.machines[node]
        return subprocess.run(machine.words(BUILD / binary, *words), env=self.environment(node, token or self.token),
                              capture_output=True, text=True, timeout=timeout, check=False)

    def start_head(self, *words):
        done = self.on("n1", "start", "--head", "--node-ip-address", self.network.machines["n1"].address,
                       "--num-cpus", "2", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return f"{self.network.machines['n1'].address}:6379"

    def join(self, node, head, *words, token=None):
        return self.on(node, "start", "--address", head, "--node-ip-address", self.network.machines[node].address,
                       "--num-cpus", "2", *words, token=token)

    def expect_named(self, texts, node, *words, token=None):
        """Starts a node that must print each text within NAMED_SECONDS."""
        begun = time.monotonic()
        machine = self.network.machines[node]
        with subprocess.Popen(machine.words(BUILD / "tandem", "start", *words), stdout=subprocess.DEVNULL,
                              env=self.environment(node, token or self.token), stderr=subprocess.PIPE) as process:
            said = ""
            os.set_blocking(process.stderr.fileno(), False)
            while any(text not in said for text in texts) and time.monotonic() < begun + NAMED_SECONDS:
                said += (process.stderr.read() or b"").decode()
                time.sleep(0.02)
            took = time.monotonic() - begun
            process.kill()
        for text in texts:
            self.assertIn(text, said)
        print(f"{texts[0]!r} after {took:.2f} s", file=sys.stderr)

    def test_three_nodes_start_and_what_passes_between_them_is_encrypted(self):
        recorder = Recorder()
        head = self.start_head("--ports", f"{PORTS[0]}-{PORTS[1]}")
        for node in ("n2", "n3"):
            begun = time.monotonic()
            done = self.join(node, head, "--ports", f"{PORTS[0]}-{PORTS[1]}")
            self.assertEqual(done.returncode, 0, done.stderr)
            print(f"{node} joined in {time.monotonic() - begun:.2f} s", file=sys.stderr)
        shown = self.on("n3", "status")
        self.assertRegex(shown.stdout, r"nodes +3")
        recorder.end()
        self.assertGreater(len(recorder.bytes), 10000)
        # Commands of Redis, keys of records, names of methods and the token.
        for secret in (b"FCALL", b"node/", b"tandemd", b"store.connect", b"TDMRPC", self.token.read_bytes()):
            self.assertFalse(secret in recorder.bytes, f"{secret} was recorded")
        self.assertLessEqual(recorder.ports, {6379, *range(PORTS[0], PORTS[1] + 1)})

    def test_recorder_sees_what_is_not_encrypted(self):
        recorder = Recorder()
        head = self.start_head("--tls", "off")
        done = self.join("n2", head, "--tls", "off")
        self.assertEqual(done.returncode, 0, done.stderr)
        recorder.end()
        for text in (b"FCALL", b"node/", b"tandemd", b"store.connect", b"TDMRPC"):
            self.assertTrue(text in recorder.bytes, f"{text} was not recorded")

    def test_node_without_tls_is_refused(self):
        head = self.start_head()
        done = self.join("n2", head, "--tls", "off")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--tls", done.stderr)
        log = (DIRECTORY / "n1" / f"tandem-started-{os.getuid()}" / "tandemd.log").read_text()
        self.assertEqual(len(re.findall("sends plain text, and this process wants TLS", log)), 1, log)

    def test_wrong_token_is_named(self):
        head = self.start_head()
        wrong = DIRECTORY / "wrong"
        wrong.write_bytes(bytes(32))
        wrong.chmod(0o600)
        self.expect_named(["does not know the cluster's token", "TANDEM_TOKEN_FILE"], "n2", "--address", head,
                          token=wrong)
        log = (DIRECTORY / "n1" / f"tandem-started-{os.getuid()}" / "tandemd.log").read_text()
        self.assertEqual(len(re.findall("does not know the cluster's token", log)), 1, log)

    def test_wrong_port_is_named(self):
        self.start_head()
        self.expect_named(["Connection refused", "no process listens at this port"], "n2", "--address",
                          f"{self.network.machines['n1'].address}:6380")

    def test_wrong_address_is_named(self):
        self.expect_named(["no answer: is the address"], "n2", "--address", "10.99.2.77:6379")

    def test_closed_port_is_named(self):
        head = self.start_head()
        self.network.cut("n1", "n2")
        self.expect_named(["no answer: is the address", "firewall"], "n2", "--address", head)

    def test_node_behind_another_address_is_reached_by_what_it_advertises(self):
        machine = self.network.machines["n2"]
        head = self.start_head()
        done = self.on("n2", "start", "--address", head, "--node-ip-address", "0.0.0.0", "--advertise",
                       machine.address, "--num-cpus", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.on("n1", "status")
        self.assertRegex(shown.stdout, r"nodes +2")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    DIRECTORY = network.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
