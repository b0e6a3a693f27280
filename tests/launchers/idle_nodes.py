#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""idle_nodes.py BUILD - what two idle nodes ask of a real Redis: a renewal each second, and no records of nodes."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import redis_servers

IDLE_SECONDS = 12  # Time in which the commands are counted.
# The first node looks once for what lost nodes left in the store, when the store is old enough for nodes to count as lost.
SETTLE_SECONDS = 60


class IdleNodes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tdr-")
        self.addCleanup(self.folder.cleanup)
        self.server = redis_servers.Server(self.folder.name)
        self.addCleanup(self.server.end)
        self.nodes = []
        for name in ("a", "b"):
            node = redis_servers.Node(BUILD, f"{self.folder.name}/{name}", f"redis://127.0.0.1:{self.server.port}")
            self.addCleanup(node.stop)
            done = node.start()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.nodes.append(node)
        self.assertRegex(self.nodes[0].run("status", address=True).stdout, "nodes +2")

    def commands(self, seconds, meanwhile=lambda: None):
        """Returns the commands that clients send within some seconds, each as a list of its words."""
        with subprocess.Popen(["redis-cli", "-p", str(self.server.port), "MONITOR"], stdout=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, text=True) as monitor:
            self.assertEqual(monitor.stdout.readline(), "OK\n")
            meanwhile()
            time.sleep(seconds)
            monitor.kill()
            lines = monitor.stdout.read().splitlines()
        # 1700000000.000000 [0 127.0.0.1:40000] "FCALL" "tandem_renew" ...; "lua" in place of an address: of a function.
        return [re.findall(r'"((?:[^"\\\\]|\\\\.)*)"', line.split("]", 1)[1]) for line in lines
                if "]" in line and not line.split("]", 1)[0].endswith("lua")]

    def reads(self, commands, kind):
        """Returns the reads of records of a kind, such as "node/", among the commands."""
        return [words for words in commands if words[0].lower() == "fcall_ro" and any(kind in word for word in words)]

    def settle(self):
        """Waits until the nodes have not read for some seconds what they read after their start."""
        deadline = time.monotonic() + SETTLE_SECONDS
        may_have_missed = time.monotonic() + 20
        has_swept = False
        while True:
            reads = self.reads(self.commands(4), "node/")
            has_swept = has_swept or any("group/*" in words for words in reads)
            if not reads and (has_swept or time.monotonic() > may_have_missed):
                return
            self.assertLess(time.monotonic(), deadline, f"nodes still read {reads}")

    def test_idle_nodes_renew_and_read_no_records_of_nodes(self):
        self.settle()
        commands = self.commands(IDLE_SECONDS)
        renewals = [words for words in commands if words[0].lower() == "fcall" and "renew" in words[1]]
        print(f"{len(commands)} commands of two nodes in {IDLE_SECONDS} s, {len(renewals)} of them renewals",
              file=sys.stderr)
        self.assertEqual(self.reads(commands, "node/"), [])
        self.assertEqual(self.reads(commands, "free/"), [])
        # Two in a second, fewer if the machine is busy.
        self.assertGreaterEqual(len(renewals), IDLE_SECONDS // 2)
        self.assertLessEqual(len(renewals), 3 * IDLE_SECONDS)

    def test_reads_of_a_list_of_nodes_are_seen(self):
        commands = self.commands(1, lambda: self.nodes[0].run("list", "nodes", address=True))
        self.assertNotEqual(self.reads(commands, "node/"), [])
        self.assertNotEqual(self.reads(commands, "free/"), [])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
