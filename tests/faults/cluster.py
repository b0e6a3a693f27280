# SPDX-License-Identifier: Apache-2.0
"""cluster.py - three nodes, and a Redis with a replica, on machines of network.py."""
import os
import pathlib
import re
import signal
import subprocess
import time

import network

NODES = ("n1", "n2", "n3")
STORE_PORT = 6379
START_SECONDS = 60  # Longest time until daemons, drivers and all their actors run; machines may be loaded.
FIXED_LEASE_SECONDS = 6  # Lease of a daemon that has no option for it.


def now():
    """Returns the time of the history: microseconds of CLOCK_BOOTTIME."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def alive(pid):
    """Whether the process runs; not whether it is a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def comm_of(pid):
    """Returns the name of a process; "" if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def stopped_process(path):
    """Returns the process that has stopped at the failpoint with this file; None if it has not."""
    words = path.read_text(encoding="utf-8").split() if path.exists() else []
    if len(words) != 3:
        return None
    about = pathlib.Path(f"/proc/{words[1]}/status").read_text(encoding="utf-8")
    return int(words[1]) if "State:\tT" in about else None


class Failure(Exception):
    """The trial could not be made; this is no verdict on what was to be shown."""


class Tandemd:
    """What this build's daemon can be told."""

    def __init__(self, build):
        self.program = build / "tandemd"
        self.help = subprocess.run([str(self.program), "--help"], capture_output=True, text=True, check=True).stdout

    def option(self, pattern):
        """Returns the option whose name matches; None if the daemon has none."""
        found = re.search(rf"^ +(--{pattern})\b", self.help, re.MULTILINE)
        return found[1] if found else None

    def lease_words(self, seconds):
        """Returns (the words that set the lease, the lease in seconds)."""
        option = self.option(r"lease[\w-]*")
        if option is None:
            return [], FIXED_LEASE_SECONDS
        return [option, round(seconds * (1000 if option.endswith("ms") else 1))], seconds

    def wait_words(self, replicas):
        option = self.option(r"[\w-]*wait-replicas")
        if replicas and option is None:
            raise Failure("tandemd has no option for the number of replicas that a renewal waits for")
        return [option, replicas] if replicas else []


class Store:
    """A Redis server on the machine s1 or s2, or a second one there with another port."""

    def __init__(self, cluster, machine, port=STORE_PORT):
        self.machine = cluster.network.machines[machine]
        self.name = f"{machine}-{port}"
        self.port = port
        self.directory = cluster.directory / self.name
        self.directory.mkdir()
        self.log = cluster.out / f"redis-{self.name}.log"
        self.process = None

    def start(self, replica_of=None):
        words = ["redis-server", "--port", self.port, "--protected-mode", "no", "--dir", self.directory, "--save", "",
                 "--appendonly", "no", "--repl-diskless-sync-delay", 0, "--repl-timeout", 10, "--daemonize", "no"]
        if replica_of:
            words += ["--replicaof", replica_of.machine.address, replica_of.port]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.machine.words(*words), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, cwd=self.directory)
        self.wait_for("PING", "PONG")

    def ask(self, *words):
        return self.machine.run("redis-cli", "-p", self.port, *words).strip()

    def wait_for(self, command, part):
        """Waits until the reply to a command has that part."""
        deadline = time.monotonic() + START_SECONDS
        said = ""
        while part not in said:
            if time.monotonic() > deadline:
                raise Failure(f"redis {self.name}: {command} answers {said!r}, not {part!r}")
            try:
                said = self.ask(*command.split())
            except RuntimeError as error:
                said = str(error)
            time.sleep(0.02)

    def wait_until_replica(self):
        self.wait_for("INFO replication", "master_link_status:up")

    def replicate(self, master):
        """Makes this server a replica of another, also if it was a master before."""
        self.ask("REPLICAOF", master.machine.address, master.port)

    def save(self):
        self.ask("SAVE")
        return self.directory / "dump.rdb"

    def kill(self):
        self.process.kill()
        self.process.wait()

    def signal(self, number):
        self.process.send_signal(number)

    def forget(self):
        """Removes the data of a server that does not run."""
        for path in self.directory.glob("*.rdb"):
            path.unlink()


class Cluster:
    """Three daemons and two Redis servers, with a directory on a file system in memory."""

    nodes = NODES  # Names of the nodes; a cluster for another purpose may have more.

    def __init__(self, build, directory, out, lease_s, wait_replicas=0):
        self.build = pathlib.Path(build)
        self.directory = directory
        self.out = out  # Directory for logs.
        self.network = network.Network(self.nodes)
        self.tandemd = Tandemd(self.build)
        self.lease_words, self.lease_s = self.tandemd.lease_words(lease_s)
        self.lease_words += self.tandemd.wait_words(wait_replicas)
        self.wait_replicas = wait_replicas
        self.token = directory / "token"
        self.token.touch(0o600)
        self.token.write_bytes(os.urandom(32))
        self.master = Store(self, "s1")
        self.spare = Store(self, "s2")  # The replica of the master.
        self.gpus = dict.fromkeys(self.nodes, 2)  # Number of GPUs of each node.
        self.gpu_bytes = 16 << 20
        self.supervisors = {}  # By node: the process that the test starts, the parent of the daemon's.
        self.addresses = {}
        self.starts = 0

    def start(self):
        self.master.start()
        self.spare.start(replica_of=self.master)
        self.spare.wait_until_replica()
        for node in self.nodes:
            self.start_daemon(node)

    def environment(self, node):
        """Returns the environment of a program on a node, which joins the node's daemon if that runs."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        environment.update(TANDEM_TOKEN_FILE=str(self.token), TMPDIR=str(self.directory))
        if node in self.addresses:
            environment["TANDEM_ADDRESS"] = self.addresses[node]
        return environment

    def redis_url(self):
        """Returns the URL of Redis that daemons get."""
        return f"redis://{network.SHARED_ADDRESS}:{STORE_PORT}"

    def start_daemon(self, node):
        self.starts += 1
        machine = self.network.machines[node]
        words = [self.tandemd.program, "--name", node, "--insecure-redis", "--redis", self.redis_url(),
                 "--listen", machine.address, "--directory", self.directory / f"{node}-{self.starts}", "--cpus", 8,
                 "--gpus", self.gpus[node], "--gpu-bytes", self.gpu_bytes, "--memory-bytes", 4 << 30,
                 "--resource", "slot=1", *self.lease_words]
        with (self.out / f"daemon-{node}.log").open("ab") as log:
            supervisor = subprocess.Popen(machine.words(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                          stderr=log, env=self.environment(None), text=True)
        said = supervisor.stdout.readline().split()
        if not said or said[0] != "ready":
            raise Failure(f"the daemon {node} does not start: {' '.join(said)}")
        self.supervisors[node] = supervisor
        self.addresses[node] = said[2]

    def daemon_of(self, node):
        """Returns the PID of the daemon of a node."""
        for pid in self.network.machines[node].processes():
            if comm_of(pid) == "tandemd":
                return pid
        raise Failure(f"no daemon runs on {node}")

    # ---- what breaks it ----

    def kill(self, pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def stop_node(self, node):
        """Stops all processes of a node, also those that are forked meanwhile, and returns their PIDs."""
        stopped = set()
        while pids := set(self.network.machines[node].processes()) - stopped:
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGSTOP)
                except ProcessLookupError:
                    pass
            stopped |= pids
        return stopped

    def proceed(self, pids):
        """Continues processes that were stopped."""
        for pid in pids:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                pass

    def kill_node(self, node):
        """Kills all processes of a node; its link should be cut, so that no other node sees connections close."""
        while pids := [pid for pid in self.network.machines[node].processes() if alive(pid)]:
            self.kill(pids)
            time.sleep(0.01)
        self.supervisors[node].wait()

    def start_again(self, node):
        """Starts the daemon of a node again."""
        self.start_daemon(node)

    def promote(self, nodes):
        """Makes the replica a master to which these nodes are led, and tells which server was the master."""
        self.spare.ask("REPLICAOF", "NO", "ONE")
        for node in nodes:
            self.network.lead(node, self.spare.machine.name)
        self.master, self.spare = self.spare, self.master

    # What a fault does with actors; a cluster that runs a job has none of these.

    def process_of(self, role):
        """Returns the PID of the process that holds a role now."""
        raise NotImplementedError(role)

    def kill_roles(self, roles):
        """Kills the processes that hold some of these roles, and returns the roles."""
        return []

    def replace_actors(self, roles):
        """Kills the processes of these roles and waits until their creators have replaced them."""

    # ---- the end ----

    def end(self):
        """Ends everything on all machines, without waiting for anything."""
        for name in self.network.machines:
            for pid in self.network.machines[name].processes():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        for supervisor in self.supervisors.values():
            supervisor.wait()
        self.network.end()
