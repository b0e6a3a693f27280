#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""redis_sentinel.py BUILD - nodes find the master of Redis by real sentinels, and go on after a failover."""
import pathlib
import signal
import socket
import sys
import tempfile
import time
import unittest

import failover
import redis_acl
import redis_servers

LEASE_MS = 30000
# Settings of docs/cluster.md, except that a master that does not answer for one second is replaced.
SENTINEL = """requirepass WATCHWORD
sentinel monitor mine 127.0.0.1 {port} 2
sentinel auth-pass mine ADMIN
sentinel down-after-milliseconds mine 1000
sentinel failover-timeout mine 10000
"""


def start_program(node):
    return failover.Program([BUILD / "tests" / "failover_program"], {**node.environment, "TANDEM_ADDRESS": "auto"})


class Failover(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tds-")
        self.addCleanup(self.folder.cleanup)
        self.servers = []
        self.sentinels = []

    def start_server(self, *words):
        server = redis_servers.Server(self.folder.name, "--requirepass", "ADMIN", "--masterauth", "ADMIN",
                                      "--appendonly", "yes", "--repl-diskless-sync-delay", 0, *words, password="ADMIN")
        self.addCleanup(server.end)
        self.servers.append(server)
        self.assertEqual(server.ask("ACL", "SETUSER", "tandem", *redis_acl.documented_rights()), "OK")
        return server

    def start_servers(self, replicas):
        """Starts a master with replicas, and three sentinels that watch them."""
        master = self.start_server()
        for _ in range(replicas):
            replica = self.start_server("--replicaof", f"127.0.0.1 {master.port}")
            redis_servers.wait_until(lambda at=replica: "master_link_status:up" in at.ask("INFO", "replication"),
                                     "the replica follows its master")
        for _ in range(3):
            sentinel = redis_servers.Server(self.folder.name, "--sentinel", password="WATCHWORD",
                                            configuration=SENTINEL.format(port=master.port))
            self.addCleanup(sentinel.end)
            self.sentinels.append(sentinel)
        for sentinel in self.sentinels:
            redis_servers.wait_until(
                lambda at=sentinel: f"status=ok,address=127.0.0.1:{master.port},slaves={replicas},sentinels=3"
                in at.ask("INFO", "sentinel"), "the sentinels know the servers and each other")
        return master

    def url(self, master="mine", password="WATCHWORD"):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://tandem:PASSWORD@{hosts}/{master}?sentinel_password={password}"

    def start_node(self, name, url, *words):
        node = redis_servers.Node(BUILD, f"{self.folder.name}/{name}", url)
        node.environment["TANDEM_LEASE_MS"] = str(LEASE_MS)
        self.addCleanup(node.stop)
        return node, node.start("--node-name", name, *words)

    def start_nodes(self, master, *words):
        """Loads the functions and starts two nodes; returns them and what the first one said."""
        node = redis_servers.Node(BUILD, f"{self.folder.name}/admin", "")
        self.assertRegex(master.ask("-x", "FUNCTION", "LOAD", text=node.run("redis-functions").stdout), r"^tandem_[0-9a-f]{16}$")
        nodes = []
        said = []
        for name in ("a", "b"):
            node, done = self.start_node(name, self.url(), *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            nodes.append(node)
            said.append(done.stderr)
        return nodes, said[0]

    def wait_for_other_master(self, old):
        """Waits until all sentinels name another master, and returns it."""
        def named(sentinel):
            return sentinel.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mine").split()[-1]
        redis_servers.wait_until(lambda: {named(each) for each in self.sentinels} != {str(old.port)} and
                                 len({named(each) for each in self.sentinels}) == 1, "another master is named", 60)
        port = int(named(self.sentinels[0]))
        return next(server for server in self.servers if server.port == port)

    def fail_over(self, nodes, master, break_master):
        """Breaks the master and shows that everything works at another one, which is returned."""
        program = start_program(nodes[0])
        before = program.ask("early")
        self.assertEqual((before["plain"][1], before["kept"][1], before["found"][1]), (1, 1, 2))
        break_master(master)
        without = program.ask("call")  # Calls do not use Redis.
        self.assertEqual(without, {"plain": (before["plain"][0], 2), "kept": (before["kept"][0], 3)})
        new = self.wait_for_other_master(master)
        after = program.ask("late")
        self.assertEqual(after["plain"], (before["plain"][0], 3))
        self.assertEqual(after["kept"], (before["kept"][0], 4))
        self.assertEqual(after["found"], (before["kept"][0], 5))
        self.assertNotIn(after["new"][0], (before["plain"][0], before["kept"][0], before["new"][0]))
        done = nodes[1].run(2, program="tests/spread_program", address=True)  # A group on both nodes.
        self.assertEqual((done.returncode, done.stdout), (0, "rank on \n" * 2), done.stderr)
        return program, after, new

    def test_actors_and_names_outlive_the_death_of_the_master(self):
        master = self.start_servers(replicas=1)
        nodes, said = self.start_nodes(master)
        self.assertIn("warning: sentinels name the master of Redis, and --redis-wait-replicas is 0", said)
        program, _, new = self.fail_over(nodes, master, lambda server: server.end())
        self.assertEqual(program.end(), 0)
        for node in nodes:
            self.assertIn(f"the master is now 127.0.0.1:{new.port}, before it was 127.0.0.1:{master.port}", node.log())
            self.assertEqual(node.log().count("--redis-wait-replicas is 0"), 1)
            self.assertNotRegex(node.log(), "PASSWORD|WATCHWORD")
            self.assertEqual(node.stop().returncode, 0)

    def test_actors_and_names_outlive_a_master_that_hangs_and_returns(self):
        master = self.start_servers(replicas=2)
        nodes, said = self.start_nodes(master, "--redis-wait-replicas", 1)
        self.assertNotIn("warning", said)
        program, before, new = self.fail_over(nodes, master,
                                              lambda server: server.process.send_signal(signal.SIGSTOP))
        master.process.send_signal(signal.SIGCONT)
        redis_servers.wait_until(lambda: master.ask("ROLE").startswith("slave"), "the old master follows the new one", 60)
        time.sleep(2)  # Some renewals.
        after = program.ask("last")
        self.assertEqual(after["plain"], (before["plain"][0], 4))
        self.assertEqual(after["found"], (before["kept"][0], 7))
        self.assertEqual(program.end(), 0)
        self.assertEqual(new.ask("ROLE").split()[0], "master")
        for node in nodes:
            self.assertNotIn("replicas that --redis-wait-replicas demands", node.log())

    def test_server_that_has_become_a_replica_is_left(self):
        """The server keeps its connections, unlike one that sentinels have made a replica; so its replies must be heeded."""
        old = self.start_servers(replicas=1)
        new = self.servers[1]
        nodes, _ = self.start_nodes(old)
        program = start_program(nodes[0])
        before = program.ask("early")
        for sentinel in self.sentinels:
            self.assertEqual(sentinel.ask("SENTINEL", "REMOVE", "mine"), "OK")
        self.assertEqual(new.ask("REPLICAOF", "NO", "ONE"), "OK")
        self.assertEqual(old.ask("REPLICAOF", "127.0.0.1", new.port), "OK")
        for sentinel in self.sentinels:
            self.assertEqual(sentinel.ask("SENTINEL", "MONITOR", "mine", "127.0.0.1", new.port, 2), "OK")
            self.assertEqual(sentinel.ask("SENTINEL", "SET", "mine", "auth-pass", "ADMIN"), "OK")
        after = program.ask("late")
        self.assertEqual(after["plain"], (before["plain"][0], 2))
        self.assertEqual(after["found"], (before["kept"][0], 4))
        self.assertEqual(program.end(), 0)
        for node in nodes:  # Each renews its lease once a second.
            redis_servers.wait_until(lambda at=node: "connection lost: READONLY" in at.log(), "the node leaves the server")
        redis_servers.wait_until(lambda: "user=tandem" not in old.ask("CLIENT", "LIST"), "all connections have moved", 10)

    def test_wrong_names_and_passwords_are_named(self):
        self.start_servers(replicas=0)
        wrong = (("n", self.url(master="other"), 'master "other": .*knows no master of this name'),
                 ("s", self.url(password="wrong"), "WRONGPASS"),
                 ("w", self.url().split("?", maxsplit=1)[0], "NOAUTH"),
                 ("m", self.url().replace("PASSWORD", "another"), 'master "mine" at 127.0.0.1:.*WRONGPASS'))
        for name, url, expected in wrong:
            with self.subTest(expected):
                begun = time.monotonic()
                _, done = self.start_node(name, url)
                self.assertNotEqual(done.returncode, 0)
                self.assertRegex(done.stderr, expected)
                self.assertLess(time.monotonic() - begun, 20)
                self.assertNotRegex(done.stderr, "PASSWORD|WATCHWORD|another@")

    def test_sentinels_that_do_not_answer_are_named(self):
        with socket.socket() as silent, socket.socket() as closed:
            for each in (silent, closed):
                each.bind(("127.0.0.1", 0))
            silent.listen()
            ports = silent.getsockname()[1], closed.getsockname()[1]
            begun = time.monotonic()
            _, done = self.start_node("c", f"redis+sentinel://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}/mine")
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"sentinel 127.0.0.1:{ports[0]}: no answer within 1000 ms", done.stderr)
            self.assertIn(f"sentinel 127.0.0.1:{ports[1]}: Connection refused", done.stderr)
            self.assertLess(time.monotonic() - begun, 20)


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
