#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_network.py - the cuts, delays and losses of network.py do what they say, and nothing is left of them."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import network

ECHO = """
import socket, sys
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("0.0.0.0", 7))
print("ready", flush=True)
while True:
    said, peer = line.recvfrom(2048)
    print(peer[0], flush=True)
    line.sendto(sys.argv[1].encode(), peer)
"""
ASK = """
import socket, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.settimeout(float(sys.argv[2]))
begun = time.monotonic()
line.sendto(b"hello", (sys.argv[1], 7))
try:
    print(line.recv(2048).decode(), time.monotonic() - begun)
except socket.timeout:
    print("nothing 0")
"""


def holders():
    """Returns the PIDs of all processes that hold a namespace."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == b"sleep\0infinity\0":
                found.append(path.parent.name)
        except OSError:
            continue  # The process has ended.
    return found


def wait_for(path, line):
    """Waits until the file has that line."""
    deadline = time.monotonic() + 10
    while line not in path.read_text(encoding="ascii").splitlines():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} has no line {line!r} after 10 s")
        time.sleep(0.01)


class Cuts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = network.Network()
        cls.echoes = {}
        for name, machine in cls.network.machines.items():
            with (PLACE / name).open("w", encoding="ascii") as said:
                cls.echoes[name] = subprocess.Popen(machine.words(sys.executable, "-c", ECHO, name), stdout=said)
            wait_for(PLACE / name, "ready")

    @classmethod
    def tearDownClass(cls):
        for echo in cls.echoes.values():
            echo.kill()
            echo.wait()
        cls.network.end()

    def tearDown(self):
        self.network.heal()
        for node in ("n1", "n2", "n3"):
            self.network.lead(node, "s1")

    def ask(self, source, target, wait=0.2):
        """Returns (who answers, seconds); target is a machine's name or an address."""
        machine = self.network.machines.get(target)
        said = self.network.machines[source].run(sys.executable, "-c", ASK, machine.address if machine else target,
                                                 wait).split()
        return said[0], float(said[1])

    def test_machines_reach_each_other(self):
        self.assertEqual(self.ask("n1", "n2")[0], "n2")
        self.assertEqual(self.ask("n3", "s2")[0], "s2")
        self.assertEqual(len(self.network.machines["n2"].processes()), 1)

    def test_a_cut_is_silent_and_ends(self):
        self.network.cut("n1", "n2")
        self.assertEqual(self.ask("n1", "n2")[0], "nothing")
        self.assertEqual(self.ask("n2", "n1")[0], "nothing")
        self.assertEqual(self.ask("n1", "n3")[0], "n3")
        self.network.heal()
        self.assertEqual(self.ask("n1", "n2")[0], "n2")

    def test_a_one_way_cut_drops_one_direction(self):
        self.network.cut_one_way("n3", "n2")
        self.assertEqual(self.ask("n2", "n3")[0], "nothing")
        wait_for(PLACE / "n3", "10.99.2.2")  # The question has arrived.

    def test_a_closed_port_is_silent_and_nothing_else_is_closed(self):
        self.network.close_port("n1", "n2", 7, "udp")
        self.assertEqual(self.ask("n1", "n2")[0], "nothing")
        self.assertEqual(self.ask("n2", "n1")[0], "n1")
        self.assertEqual(self.ask("n3", "n2")[0], "n2")
        self.network.heal()
        self.assertEqual(self.ask("n1", "n2")[0], "n2")

    def test_the_shared_address_leads_to_the_chosen_store(self):
        self.assertEqual(self.ask("n1", network.SHARED_ADDRESS)[0], "s1")
        self.network.lead("n1", "s2")
        self.assertEqual(self.ask("n1", network.SHARED_ADDRESS)[0], "s2")
        self.assertEqual(self.ask("n2", network.SHARED_ADDRESS)[0], "s1")
        self.network.cut("n1", "s2")
        self.assertEqual(self.ask("n1", network.SHARED_ADDRESS)[0], "nothing")
        self.network.lead("n1", "s1")
        self.assertEqual(self.ask("n1", network.SHARED_ADDRESS)[0], "s1")

    @unittest.skipUnless(network.Delay.is_allowed(), "only root may delay packets")
    def test_delay_and_loss(self):
        self.network.disturb("n1", "n2", 0.1, 0.0)
        who, seconds = self.ask("n1", "n2", 2)
        self.assertEqual(who, "n2")
        self.assertGreaterEqual(seconds, 0.2)
        self.network.heal()
        self.network.disturb("n1", "n2", 0.0, 1.0)
        self.assertEqual(self.ask("n1", "n2")[0], "nothing")
        self.network.heal()
        self.assertEqual(self.ask("n1", "n2")[0], "n2")

    def test_nothing_is_left_of_a_program_that_is_killed(self):
        environment = {name: value for name, value in os.environ.items() if name != network.INSIDE}
        before = len(holders())
        with subprocess.Popen([sys.executable, __file__, "stay"], stdout=subprocess.PIPE, env=environment,
                              text=True) as program:
            self.assertEqual(program.stdout.readline(), "ready\n")
            self.assertEqual(len(holders()), before + len(self.network.machines))
            program.kill()
        deadline = time.monotonic() + 10
        while len(holders()) > before and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(len(holders()), before)


if __name__ == "__main__":
    PLACE = network.enter()
    if sys.argv[1:] == ["stay"]:
        network.Network()
        print("ready", flush=True)
        signal.pause()
    sys.exit(0 if unittest.main(exit=False).result.wasSuccessful() else 1)
