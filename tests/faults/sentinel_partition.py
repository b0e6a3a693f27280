#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sentinel_partition.py BUILD - the master of Redis is cut off from its replicas and from the other sentinels.

Three machines have a Redis server and a sentinel each, as docs/cluster.md has it; three others are nodes (network.py).
The sentinel beside the old master goes on naming it.  Nodes may reach both sides, or only the old master.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import threading
import time
import unittest

import cluster
import network

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "launchers"))
import failover  # noqa: E402

SERVERS = ("s1", "s2", "s3")  # s1 is the first master.
SENTINEL_PORT = 26379
LEASE_SECONDS = 15
GRACE_SECONDS = 2
FAILOVER_SECONDS = 60  # Longest time of a failover, and of what follows it, on a busy machine.
SENTINEL = """protected-mode no
dir {directory}
sentinel monitor mine {master} {port} 2
sentinel down-after-milliseconds mine 1000
sentinel failover-timeout mine 10000
"""


def time_of_start(pid):
    """Returns when a process has started, in seconds after the start of the machine; None if it has ended."""
    try:
        words = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else int(words[19]) / 100


class End(threading.Thread):
    """Notes when a process ends, in seconds after the start of the machine."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid = pid
        self.at = None  # None before the end.
        self.start()

    def run(self):
        while cluster.alive(self.pid):
            time.sleep(0.02)
        self.at = time.clock_gettime(time.CLOCK_BOOTTIME)


class Sentinels(cluster.Cluster):
    """Three nodes, and three machines with a Redis server and a sentinel each."""

    nodes = ("n1", "n2", "n3", "s3")  # Machines; s1 and s2 are those of every cluster.

    def __init__(self, build, directory, out, wait_replicas):
        super().__init__(build, directory, out, LEASE_SECONDS, wait_replicas)
        self.servers = {"s1": self.master, "s2": self.spare, "s3": cluster.Store(self, "s3")}
        self.sentinels = []

    def start(self):
        self.master.start()
        for name in ("s2", "s3"):
            self.servers[name].start(replica_of=self.master)
            self.servers[name].wait_until_replica()
        for name in SERVERS:
            self.start_sentinel(name)
        for name in SERVERS:
            self.wait_for_sentinel(name, "slaves=2,sentinels=3")
        for node in cluster.NODES:
            self.start_daemon(node)

    def start_sentinel(self, name):
        directory = self.directory / f"sentinel-{name}"
        directory.mkdir()
        configuration = directory / "sentinel.conf"
        configuration.write_text(SENTINEL.format(directory=directory, master=self.master.machine.address,
                                                 port=cluster.STORE_PORT), encoding="ascii")
        with (self.out / f"sentinel-{name}.log").open("ab") as log:
            self.sentinels.append(subprocess.Popen(
                self.network.machines[name].words("redis-server", configuration, "--sentinel", "--port", SENTINEL_PORT),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def ask_sentinel(self, name, *words):
        return self.network.machines[name].run("redis-cli", "-p", SENTINEL_PORT, *words)

    def wait_for_sentinel(self, name, part):
        def knows():
            try:
                return part in self.ask_sentinel(name, "INFO", "sentinel")
            except RuntimeError:
                return False  # It does not listen yet.
        wait_until(knows, f"the sentinel of {name} knows {part}")

    def named(self, name):
        """Returns the address of the master that the sentinel of a machine names."""
        return self.ask_sentinel(name, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", "mine").split()[0]

    def redis_url(self):
        hosts = ",".join(self.network.machines[name].address for name in SERVERS)
        return f"redis+sentinel://{hosts}/mine"

    def cut(self, ones, others):
        for one in ones:
            for other in others:
                self.network.cut(one, other)

    def wait_for_other_master(self):
        """Waits until the sentinels of s2 and s3 name one of their servers, and returns its name."""
        old = self.master.machine.address
        wait_until(lambda: self.named("s2") != old and self.named("s2") == self.named("s3"), "another master is named")
        return next(name for name in SERVERS if self.network.machines[name].address == self.named("s2"))

    def program(self, node):
        return failover.Program(self.network.machines[node].words(self.build / "tests" / "failover_program"),
                                self.environment(node))

    def list(self, node, kind, *words):
        done = subprocess.run(self.network.machines[node].words(self.build / "tandem", "list", kind, "--json", *words),
                              env=self.environment(node), capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)

    def named_kept(self, node):
        """Returns the processes of live actors with the name "kept", as a node lists them."""
        return [actor["pid"] for actor in self.list(node, "actors", "--live") if actor["name"] == "kept"]

    def all_is_free(self, node):
        """Returns whether no resource of any node is used, and no group is left, as a node lists them."""
        amounts = [amount for each in self.list(node, "nodes") for amount in each["resources"].values()]
        return self.list(node, "groups") == [] and all(amount["free"] == amount["total"] for amount in amounts)

    def run_group(self, node):
        """Starts a program on a node that makes a placement group of one bundle, with an actor, and removes it."""
        return subprocess.Popen(self.network.machines[node].words(self.build / "tests" / "spread_program", 1),
                                env=self.environment(node), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def log(self, node):
        return (self.out / f"daemon-{node}.log").read_text(encoding="utf-8")

    def end(self):
        super().end()
        for process in (*self.sentinels, *(server.process for server in self.servers.values() if server.process)):
            process.wait()
        for supervisor in self.supervisors.values():
            supervisor.stdout.close()


def wait_until(holds, what, seconds=FAILOVER_SECONDS):
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.05)


def is_replica(server):
    """Whether a server is a replica.  One that becomes one closes all its connections, also that of this question."""
    try:
        return server.ask("ROLE").startswith("slave")
    except RuntimeError:
        return False


class Partition(unittest.TestCase):
    def start(self, wait_replicas):
        name = self.id().rpartition(".")[2]
        directory = DIRECTORY / str(len(list(DIRECTORY.iterdir())))  # Paths of sockets must be short.
        directory.mkdir()
        logs = BUILD / "sentinel-partition" / name
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        started = Sentinels(BUILD, directory, logs, wait_replicas)
        self.addCleanup(started.end)
        started.start()
        return started

    def heal(self, used, new):
        """Ends the partition.  The old master must become a replica, and all nodes use the new one."""
        used.network.heal()
        wait_until(lambda: is_replica(used.master), "the old master follows the new one")
        address = used.network.machines[new].address
        for node in cluster.NODES:
            wait_until(lambda at=node: f"the master is now {address}:{cluster.STORE_PORT}" in used.log(at),
                       f"{node} uses the new master")

    def test_nodes_that_reach_both_masters_use_the_new_one_within_the_lease(self):
        used = self.start(wait_replicas=1)
        program = used.program("n1")
        before = program.ask("early")
        used.cut(["s1"], ["s2", "s3"])
        new = used.wait_for_other_master()
        self.assertEqual(used.named("s1"), used.master.machine.address)  # Its sentinel does not know.
        self.assertEqual(used.master.ask("ROLE").split()[0], "master")
        said = [program.ask("late")]
        time.sleep(LEASE_SECONDS + GRACE_SECONDS + 2)
        said.append(program.ask("later"))
        self.heal(used, new)
        time.sleep(3)  # Some renewals.
        said.append(program.ask("last"))
        for each in said:
            self.assertEqual((each["plain"][0], each["kept"][0], each["found"][0]),
                             (before["plain"][0], before["kept"][0], before["kept"][0]))
        self.assertEqual(program.end(), 0)
        wait_until(lambda: used.all_is_free("n2"), "nothing is left")

    def start_other(self, used):
        """Starts a program on n2 as soon as the name "kept" is free, and returns it with what it says."""
        deadline = time.monotonic() + LEASE_SECONDS + GRACE_SECONDS + FAILOVER_SECONDS
        while time.monotonic() < deadline:
            program = used.program("n2")
            try:
                return program, program.ask("other")
            except AssertionError:
                time.sleep(0.5)  # Another actor has the name.
            finally:
                self.addCleanup(program.process.stdin.close)
                self.addCleanup(program.process.stdout.close)
        return self.fail("the name of an actor on a lost node does not become free")

    def test_nodes_on_both_sides_agree_when_the_partition_ends(self):
        """The node n1 reaches the old master only, and a sentinel that names it."""
        used = self.start(wait_replicas=1)
        cut_off = used.program("n1")
        before = cut_off.ask("early")
        end = End(before["kept"][0])
        used.cut(["s1", "n1"], ["s2", "s3", "n2", "n3"])
        beside = used.run_group("n1")  # Perhaps placed at the old master.
        new = used.wait_for_other_master()
        wait_until(lambda: used.run_group("n2").wait(FAILOVER_SECONDS) == 0, "n2 places a group")
        other, said = self.start_other(used)
        self.assertIsNotNone(end.at, "an actor is alive whose name another one has")
        self.assertLess(end.at, time_of_start(said["kept"][0]))
        self.assertEqual(used.named("s1"), used.master.machine.address)
        refused = used.program("n1")  # Its node must not give the name away again.
        self.addCleanup(refused.process.stdout.close)
        self.assertRaises(AssertionError, refused.ask, "again")
        beside.wait(FAILOVER_SECONDS)
        self.heal(used, new)
        wait_until(lambda: len(used.list("n2", "nodes")) == 3, "n1 is back")
        for node in cluster.NODES:
            self.assertEqual(used.named_kept(node), [said["kept"][0]])
        self.assertTrue(cluster.alive(before["plain"][0]))  # It has no name, no restarts and no GPU.
        self.assertEqual(other.ask("last")["found"][0], said["kept"][0])
        self.assertEqual(other.end(), 0)
        cut_off.process.kill()
        wait_until(lambda: used.all_is_free("n3"), "nothing is left")


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    DIRECTORY = network.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2, warnings="ignore")
