# SPDX-License-Identifier: Apache-2.0
"""network.py - machines in network namespaces, joined by a router whose links can be cut, delayed and made lossy.

enter() runs the program again in user, network, mount and PID namespaces of its own.  That network namespace is the
router, and each machine is a further network namespace with one link to it.  When the program ends, however it ends,
the kernel kills all processes in the PID namespace and removes everything else.
"""
import fcntl
import heapq
import os
import pathlib
import random
import select
import shutil
import struct
import subprocess
import sys
import threading
import time

INSIDE = "TANDEM_FAULTS_INSIDE"  # Variable that is set in the namespaces.
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child",
           "--mount-proc"]
SHARED_ADDRESS = "10.99.100.1"  # Address that all Redis machines have; each machine is led to one of them.
CUT_PRIORITY = 100  # Priority of the router's rules that drop packets.
DELAY_PRIORITY = 150  # Priority of its rules that lead packets to the delaying program.
SHARED_PRIORITY = 200  # Priority of its rules that lead packets for SHARED_ADDRESS.
DELAY_TABLE = 150  # Routing table whose only route leads to the delaying program.
DELAY_DEVICE = "/dev/net/tun"
PACKET_BYTES = 65536  # Largest packet.
TUNSETIFF = 0x400454CA
IFF_TUN_WITHOUT_HEADER = 0x1001


def run(*words):
    """Runs a command of the system and returns what it prints; raises RuntimeError if it fails."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def why_not():
    """Returns why namespaces cannot be used here; None if they can."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"network namespaces need the program {program}"
    tried = subprocess.run([*UNSHARE, "ip", "link", "set", "lo", "up"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"network namespaces are not allowed: {tried.stderr.strip()}"


def enter():
    """Returns a directory for the test, inside of the namespaces.  Outside, becomes this program inside; if that is
    not allowed, says so and exits with 77.  The directory is on a file system in memory that only the namespaces
    have."""
    if INSIDE in os.environ:
        run("mount", "-t", "tmpfs", "none", "/dev/shm")
        run("ip", "link", "set", "lo", "up")
        for name, value in (("ip_forward", 1), ("conf/all/rp_filter", 0), ("conf/default/rp_filter", 0)):
            pathlib.Path("/proc/sys/net/ipv4", name).write_text(str(value), encoding="ascii")
        directory = pathlib.Path("/dev/shm/faults")
        directory.mkdir()
        return directory
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    sys.stdout.flush()
    os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    return None  # execvpe() does not return.


class Machine:
    """A network namespace with one link to the router, held by a process that sleeps."""

    def __init__(self, name, number):
        self.name = name
        self.network = f"10.99.{number}.0/24"
        self.address = f"10.99.{number}.2"
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL)
        self.inode = self.wait_for_namespace()
        run("ip", "link", "add", "dev", name, "type", "veth", "peer", "name", "eth0", "netns", self.holder.pid)
        run("ip", "addr", "add", f"10.99.{number}.1/24", "dev", name)
        run("ip", "link", "set", name, "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", f"10.99.{number}.1")

    def wait_for_namespace(self):
        """Waits until the holder has its own namespace, and returns the inode by which the namespace is known."""
        own = os.stat("/proc/self/ns/net").st_ino
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            inode = os.stat(f"/proc/{self.holder.pid}/ns/net").st_ino
            comm = pathlib.Path(f"/proc/{self.holder.pid}/comm").read_text(encoding="utf-8").strip()
            if inode != own and comm == "sleep":
                return inode
            time.sleep(0.005)
        raise RuntimeError(f"the namespace of {self.name} was not made within 10 s")

    def words(self, *words):
        """Returns the command that runs `words` on this machine, in a process with the PID of the command."""
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--", *map(str, words)]

    def run(self, *words):
        return run(*self.words(*words))

    def processes(self):
        """Returns the PIDs of the processes on this machine, without zombies and without the holder."""
        found = []
        for entry in os.listdir("/proc"):
            try:
                if entry.isdigit() and os.stat(f"/proc/{entry}/ns/net").st_ino == self.inode:
                    found.append(int(entry))
            except OSError:
                continue  # The process has ended.
        return [pid for pid in found if pid != self.holder.pid]


class Delay:
    """A program between machines: takes packets from a device of the router and gives them back later, or never."""

    def __init__(self, seconds, loss, seed):
        self.seconds = seconds
        self.loss = loss  # Part of the packets that is lost, 0 to 1.
        self.random = random.Random(seed)
        if not Delay.is_allowed():
            raise RuntimeError(f"a delay needs {DELAY_DEVICE}, which only root may open")
        self.device = os.open(DELAY_DEVICE, os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(self.device, TUNSETIFF, struct.pack("16sH22x", b"delay", IFF_TUN_WITHOUT_HEADER))
        run("ip", "link", "set", "delay", "up")
        run("ip", "route", "add", "default", "dev", "delay", "table", DELAY_TABLE)
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.forward, daemon=True)
        self.thread.start()

    @staticmethod
    def is_allowed():
        return os.access(DELAY_DEVICE, os.R_OK | os.W_OK)

    def forward(self):
        waiting = []  # Heap of (time at which it goes on, number, packet).
        number = 0
        while not self.ending.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                os.write(self.device, heapq.heappop(waiting)[2])
            pause = min(0.1, waiting[0][0] - now) if waiting else 0.1
            if not select.select([self.device], [], [], max(0, pause))[0]:
                continue
            packet = os.read(self.device, PACKET_BYTES)
            if self.random.random() >= self.loss:
                number += 1
                heapq.heappush(waiting, (time.monotonic() + self.seconds, number, packet))

    def end(self):
        self.ending.set()
        self.thread.join()
        os.close(self.device)  # The device and its route go with the descriptor.


class Network:
    """Machines behind the router.  nodes are n1, n2, …; stores are s1 and s2, which share SHARED_ADDRESS."""

    def __init__(self, nodes=("n1", "n2", "n3"), stores=("s1", "s2")):
        self.machines = {}
        self.rules = set()
        self.led_to = {}
        self.delay = None
        for number, name in enumerate(nodes, 1):
            self.machines[name] = Machine(name, number)
        for number, name in enumerate(stores, 11):
            machine = self.machines[name] = Machine(name, number)
            machine.run("ip", "addr", "add", f"{SHARED_ADDRESS}/32", "dev", "lo")
            run("ip", "route", "add", SHARED_ADDRESS, "via", machine.address, "dev", name, "table", number)
        self.stores = {name: number for number, name in enumerate(stores, 11)}
        for name in nodes:
            self.lead(name, stores[0])

    def end(self):
        """Removes all machines with their links, so that others of these names can be made."""
        self.heal()
        for node, store in self.led_to.items():
            self.rule("del", SHARED_PRIORITY, "iif", node, "to", SHARED_ADDRESS, "lookup", self.stores[store])
        for name, machine in self.machines.items():
            run("ip", "link", "del", "dev", name)
            machine.holder.kill()
            machine.holder.wait()

    def rule(self, action, priority, *words):
        run("ip", "rule", action, "priority", priority, *words)

    def lead(self, node, store):
        """Lets the node reach this machine under SHARED_ADDRESS.  Its connections with another one break."""
        if node in self.led_to:
            self.rule("del", SHARED_PRIORITY, "iif", node, "to", SHARED_ADDRESS, "lookup",
                      self.stores[self.led_to[node]])
        self.rule("add", SHARED_PRIORITY, "iif", node, "to", SHARED_ADDRESS, "lookup", self.stores[store])
        self.led_to[node] = store
        self.cut_shared_address(node)

    def drop(self, source, destination, dropped):
        """Makes the rule that drops what `source` sends to a destination, or removes it."""
        words = ("iif", source, "to", destination, "blackhole")
        if dropped and words not in self.rules:
            self.rule("add", CUT_PRIORITY, *words)
            self.rules.add(words)
        elif not dropped and words in self.rules:
            self.rule("del", CUT_PRIORITY, *words)
            self.rules.remove(words)

    def cut_shared_address(self, source):
        """Drops what `source` sends to SHARED_ADDRESS if it is cut off from the machine to which the address leads."""
        store = self.led_to.get(source)
        if store:
            words = ("iif", source, "to", self.machines[store].network, "blackhole")
            self.drop(source, SHARED_ADDRESS, words in self.rules)

    def cut_one_way(self, source, target):
        """Drops silently what `source` sends to `target`."""
        self.drop(source, self.machines[target].network, True)
        self.cut_shared_address(source)

    def cut(self, one, other):
        self.cut_one_way(one, other)
        self.cut_one_way(other, one)

    def close_port(self, source, target, port, protocol="tcp"):
        """Drops silently what `source` sends to a port of `target`, as a firewall does, and nothing else."""
        words = ("iif", source, "to", self.machines[target].network, "ipproto", protocol, "dport", port, "blackhole")
        self.rule("add", CUT_PRIORITY, *words)
        self.rules.add(words)

    def isolate(self, name, to_it=True, from_it=True):
        """Cuts a machine off from all others: what is sent to it, what it sends, or both."""
        for other in self.machines:
            if other != name and from_it:
                self.cut_one_way(name, other)
            if other != name and to_it:
                self.cut_one_way(other, name)

    def heal(self):
        """Ends all cuts, delays and losses."""
        for words in self.rules:
            self.rule("del", CUT_PRIORITY if "blackhole" in words else DELAY_PRIORITY, *words)
        self.rules.clear()
        if self.delay:
            self.delay.end()
            self.delay = None

    def disturb(self, one, other, seconds, loss, seed=1):
        """Delays what the two machines send to each other, and loses this part of the packets."""
        self.delay = self.delay or Delay(seconds, loss, seed)
        for source, target in ((one, other), (other, one)):
            words = ("iif", source, "to", self.machines[target].network, "lookup", DELAY_TABLE)
            self.rule("add", DELAY_PRIORITY, *words)
            self.rules.add(words)
