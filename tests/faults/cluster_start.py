#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cluster_start.py BUILD - three machines follow docs/cluster.md, and mistakes on the way are named within 5 s.

The machines are network namespaces with one link each (network.py).  What passes between them is recorded."""
import errno
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import unittest

import started_nodes
from recorder import Recorder
from started_nodes import HEAD_PORT, StartedNodes

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMED_SECONDS = 5  # A mistake must be named within this time.
JOIN_SECONDS = 2  # A further node must have joined within this time.
PORTS = (7100, 7119)
# What tests/faults/traffic_program.c moves between two nodes: an argument, a value, weights, a group's data, and an
# environment variable of the actors.  The reply to the argument is the reversed word.
MOVED = {"argument": "argument-6c1f0e93a57d", "value": "value-93b0d24e7f18", "weights": "weights-5d8a2c07e4b6",
         "group": "group-e1f4097ab3c2", "variable": "variable-0b7d5e31c9f6"}
PAGE_ADDRESS = "10.0.0.5"  # Address of the head node in docs/cluster.md.


def commands_of_page(section):
    """Returns the first blocks of commands of a section of docs/cluster.md, each as a list of lines."""
    text = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    body = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return [[line.strip() for line in block.splitlines()] for block in re.findall(r"(?m)(?:^    .*\n)+", body)]


def listening_ports(machine):
    """Returns the TCP ports at which processes of a machine listen for other machines."""
    ports = set()
    for name in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{machine.holder.pid}/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
            address, state = line.split()[1], line.split()[3]
            host, port = address.split(":")
            if state == "0A" and host != "0100007F":  # It listens, and not on loopback alone.
                ports.add(int(port, 16))
    return ports


class Start(StartedNodes):
    def expect_said(self, texts, node, words, environment):
        """Runs a command that must print each text within NAMED_SECONDS, and kills it then."""
        begun = time.monotonic()
        said = ""
        with subprocess.Popen(self.network.machines[node].words(*words), stdout=subprocess.DEVNULL, env=environment,
                              stderr=subprocess.PIPE, start_new_session=True) as process:
            os.set_blocking(process.stderr.fileno(), False)
            while any(text not in said for text in texts) and time.monotonic() < begun + NAMED_SECONDS:
                said += (process.stderr.read() or b"").decode()
                time.sleep(0.02)
            took = time.monotonic() - begun
            os.killpg(process.pid, signal.SIGKILL)
        for text in texts:
            self.assertIn(text, said)
        print(f"{texts[0]!r} after {took:.2f} s", file=sys.stderr)

    def expect_named(self, texts, node, *words, token=None):
        """Starts a node that must print each text within NAMED_SECONDS."""
        self.expect_said(texts, node, (BUILD / "tandem", "start", *words), self.environment(node, token or self.token))

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
        self.assertLessEqual(recorder.ports, {HEAD_PORT, *range(PORTS[0], PORTS[1] + 1)})

    def test_recorder_sees_what_is_not_encrypted(self):
        recorder = Recorder()
        head = self.start_head("--tls", "off")
        done = self.join("n2", head, "--tls", "off")
        self.assertEqual(done.returncode, 0, done.stderr)
        recorder.end()
        for text in (b"FCALL", b"node/", b"tandemd", b"store.connect", b"TDMRPC"):
            self.assertTrue(text in recorder.bytes, f"{text} was not recorded")

    def move(self, *options, meanwhile=lambda: None):
        """Lets a driver and two actors on two nodes move MOVED, and returns the recording of that.  Calls meanwhile()
        while their ports are open."""
        head = self.start_head(*options)
        done = self.join("n2", head, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        recorder = Recorder()
        words = self.network.machines["n1"].words(BUILD / "tests" / "traffic_program", *MOVED.values())
        environment = {**self.environment("n1", self.token), "TANDEM_ADDRESS": "auto"}
        with subprocess.Popen(words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as program:
            self.assertEqual(program.stdout.readline(), "moved\n")
            meanwhile()
            program.stdin.close()
            self.assertEqual(program.wait(60), 0)
        recorder.end()
        return recorder

    def secrets(self):
        """Returns {name: bytes} of what must not be recorded of MOVED."""
        secrets = {name: word.encode() for name, word in MOVED.items()}
        secrets["reply"] = MOVED["argument"][::-1].encode()
        return secrets

    def test_recorded_work_holds_no_secret(self):
        recorder = self.move()
        self.assertGreater(len(recorder.bytes), 4 << 20)  # Two values, weights, and the data of the group.
        for name, secret in {**self.secrets(), "token": self.token.read_bytes()}.items():
            self.assertFalse(secret in recorder.bytes, f"the {name} was recorded")

    def test_recorder_sees_secrets_of_work_that_is_not_encrypted(self):
        recorder = self.move("--tls", "off")
        for name, secret in self.secrets().items():
            self.assertTrue(secret in recorder.bytes, f"the {name} was not recorded")
        self.assertFalse(self.token.read_bytes() in recorder.bytes, "the token was recorded")

    def test_actors_drivers_and_groups_keep_to_the_ports(self):
        seen = {}

        def look():
            for node in ("n1", "n2"):
                seen[node] = listening_ports(self.network.machines[node])

        recorder = self.move("--ports", f"{PORTS[0]}-{PORTS[1]}", meanwhile=look)
        print(f"listening ports: {seen}", file=sys.stderr)
        given = set(range(PORTS[0], PORTS[1] + 1))
        self.assertLessEqual(seen["n1"], given | {HEAD_PORT})
        self.assertLessEqual(seen["n2"], given)
        # The driver and its actor, and a daemon and an actor, and each actor's rank in the group.
        self.assertGreaterEqual(len(seen["n1"] & given), 2)
        self.assertGreaterEqual(len(seen["n2"] & given), 3)
        self.assertLessEqual(recorder.ports, given | {HEAD_PORT})

    def test_actors_are_reached_by_what_their_node_advertises(self):
        """The nodes listen at 0.0.0.0, which others could not use as an address."""
        address = self.network.machines["n1"].address
        done = self.on("n1", "start", "--head", "--node-ip-address", "0.0.0.0", "--advertise", address, "--num-cpus",
                       "2", "--ports", f"{PORTS[0]}-{PORTS[1]}")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = self.on("n2", "start", "--address", f"{address}:{HEAD_PORT}", "--node-ip-address", "0.0.0.0",
                       "--advertise", self.network.machines["n2"].address, "--num-cpus", "2", "--ports",
                       f"{PORTS[0]}-{PORTS[1]}")
        self.assertEqual(done.returncode, 0, done.stderr)
        words = self.network.machines["n1"].words(BUILD / "tests" / "traffic_program", *MOVED.values())
        done = subprocess.run(words, env={**self.environment("n1", self.token), "TANDEM_ADDRESS": "auto"},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "moved\n"), done.stderr)

    def test_node_without_tls_is_refused(self):
        head = self.start_head()
        done = self.join("n2", head, "--tls", "off")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--tls", done.stderr)
        self.assertEqual(self.count_in_log("n1", "sends plain text, and this process wants TLS"), 1)

    def test_wrong_token_is_named(self):
        head = self.start_head()
        wrong = DIRECTORY / "wrong"
        wrong.write_bytes(bytes(32))
        wrong.chmod(0o600)
        self.expect_named(["does not know the cluster's token", "TANDEM_TOKEN_FILE"], "n2", "--address", head,
                          token=wrong)
        self.assertEqual(self.count_in_log("n1", "does not know the cluster's token"), 1)

    def test_wrong_port_is_named(self):
        self.start_head()
        self.expect_named(["Connection refused", "no process listens at this port"], "n2", "--address",
                          f"{self.network.machines['n1'].address}:6380")

    def test_wrong_address_is_named(self):
        self.expect_named(["no answer: is the address"], "n2", "--address", "10.99.2.77:6379")

    def test_unreachable_machine_is_named(self):
        head = self.start_head()
        self.network.cut("n1", "n2")
        self.expect_named(["no answer: is the address", "firewall"], "n2", "--address", head)

    def test_closed_port_is_named(self):
        head = self.start_head()
        self.network.close_port("n2", "n1", HEAD_PORT)
        self.expect_named(["no answer: is the address", "firewall"], "n2", "--address", head)

    # ---- docs/cluster.md, as a new user follows it ----

    def of_page(self, node, line):
        """Returns (words, environment) of a command of docs/cluster.md, in a shell of a new user of the machine.  All
        machines share a file system, so that scp copies on it."""
        home = DIRECTORY / node / "home"
        home.mkdir(parents=True, exist_ok=True)
        head = self.network.machines["n1"].address
        line = line.replace(PAGE_ADDRESS, head).replace("/tmp/tandem-started-1000",
                                                        f"{DIRECTORY / 'n1'}/tandem-started-{os.getuid()}")
        environment = self.environment(node, None)
        environment.update(HOME=str(home), PATH=f"{BUILD}:{environment['PATH']}")
        return ["sh", "-c", 'scp() { cp "${1#*:}" "$2"; }; ' + line], environment

    def run_of_page(self, node, line):
        words, environment = self.of_page(node, line)
        return subprocess.run(self.network.machines[node].words(*words), env=environment, capture_output=True, text=True,
                              timeout=60, check=False)

    def follow_page(self):
        """Starts the head node by the page.  Returns the command that copies the token, and the one that joins."""
        (start,), (copy, join) = commands_of_page("The first node and further ones")[:2]
        done = self.run_of_page("n1", start)
        self.assertEqual(done.returncode, 0, done.stderr)
        return copy, join

    def test_new_user_starts_three_nodes_by_the_page(self):
        copy, join = self.follow_page()
        for node in ("n2", "n3"):
            self.assertEqual(self.run_of_page(node, copy).returncode, 0)
            begun = time.monotonic()
            done = self.run_of_page(node, join)
            took = time.monotonic() - begun
            self.assertEqual(done.returncode, 0, done.stderr)
            print(f"{node} joined by the page in {took:.2f} s", file=sys.stderr)
            self.assertLess(took, JOIN_SECONDS)
        shown = self.run_of_page("n3", "tandem status")
        self.assertIn("nodes   3\n", shown.stdout)

    def expect_page_names(self, texts, line):
        words, environment = self.of_page("n2", line)
        self.expect_said(texts, "n2", words, environment)

    def test_wrong_token_is_named_to_a_new_user(self):
        _, join = self.follow_page()
        self.run_of_page("n2", "umask 077; head -c 32 /dev/zero >~/token")
        self.expect_page_names(["does not know the cluster's token"], join)
        self.assertEqual(self.count_in_log("n1", "does not know the cluster's token"), 1)

    def test_wrong_address_is_named_to_a_new_user(self):
        copy, join = self.follow_page()
        self.assertEqual(self.run_of_page("n2", copy).returncode, 0)
        self.expect_page_names(["no answer: is the address"], join.replace(PAGE_ADDRESS, "10.99.2.77"))

    def test_closed_port_is_named_to_a_new_user(self):
        """Only the port is closed: the machines still reach each other."""
        copy, join = self.follow_page()
        self.assertEqual(self.run_of_page("n2", copy).returncode, 0)
        self.network.close_port("n2", "n1", HEAD_PORT)
        self.assertEqual(self.errno_of_connecting("n2", "n1", HEAD_PORT + 1), errno.ECONNREFUSED)
        self.expect_page_names(["no answer: is the address", "firewall"], join)
        self.assertEqual(self.errno_of_connecting("n2", "n1", HEAD_PORT + 1), errno.ECONNREFUSED)

    def errno_of_connecting(self, source, target, port):
        """Connects to a TCP port from another machine, and returns errno of that; 0 if it succeeds."""
        program = ("import socket, sys; line = socket.socket(); line.settimeout(2); "
                   "print(line.connect_ex((sys.argv[1], int(sys.argv[2]))))")
        return int(self.network.machines[source].run(sys.executable, "-c", program,
                                                     self.network.machines[target].address, port))

    def count_in_log(self, node, text):
        """Returns how many lines of the log of a node's daemon have the text."""
        log = (DIRECTORY / node / f"tandem-started-{os.getuid()}" / "tandemd.log").read_text(encoding="utf-8")
        return len(re.findall(re.escape(text), log))

    def test_node_behind_another_address_is_reached_by_what_it_advertises(self):
        machine = self.network.machines["n2"]
        head = self.start_head()
        done = self.on("n2", "start", "--address", head, "--node-ip-address", "0.0.0.0", "--advertise",
                       machine.address, "--num-cpus", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.on("n1", "status")
        self.assertRegex(shown.stdout, r"nodes +2")


if __name__ == "__main__":
    BUILD, DIRECTORY = started_nodes.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=1)
