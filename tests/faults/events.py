# SPDX-License-Identifier: Apache-2.0
"""events.py - the faults of the table: what is broken, for how long, and what may suffer from it."""
import dataclasses
import os
import shutil
import signal
import time
import typing

from cluster import STORE_PORT, Store, now

VICTIM = "n2"  # The node that suffers, unless a trial chooses another one.
GRACE_SECONDS = 2
BEYOND_SECONDS = 6  # A fault that is to end a lease lasts so much longer than lease and grace.


@dataclasses.dataclass
class Event:
    """A fault."""

    name: str
    title: str
    run: typing.Callable  # Breaks, waits and heals; gets a Trial.
    harmed: tuple = ()  # Nodes whose processes may end.
    quiet: bool = False  # No call is to fail, and no actor to end.
    takeover: bool = False  # Restartable actors of the harmed nodes are to be restarted elsewhere.
    wait_replicas: int = 0  # Replicas that confirm a renewal before it counts.
    lease_s: float = 0  # Lease that the fault needs; 0: any.
    apart: tuple = ()  # Two nodes that reach Redis, but not each other.
    # Rules that the documentation says may be broken: they are in the table, but are no failure.
    risks: tuple = ()


EVENTS = {}


def event(name, title, **more):
    def add(function):
        EVENTS[name] = Event(name, title, function, **more)
        return function
    return add


class Trial:
    """What the faults use of a trial: the cluster, and marks of when the fault began and was over."""

    def __init__(self, cluster, number, victim=VICTIM):
        self.cluster = cluster
        self.number = number
        self.victim = victim
        self.begun = None
        self.healed = None
        self.replaced = []  # Roles whose processes were killed after the fault had begun.

    def begin(self):
        self.begun = now()

    def heal(self):
        self.healed = now()

    def replace(self):
        """Kills some processes just after Redis has answered with old data or none, so that their names and GPUs are
        given again, perhaps before the nodes have told Redis what they hold."""
        self.replaced = self.cluster.kill_roles(["named-1", "gpu-1", "gpu-3"])

    def outlast_lease(self):
        """Waits until the others have taken over what they may."""
        time.sleep(self.cluster.lease_s + GRACE_SECONDS + BEYOND_SECONDS)


@event("process-killed", "a restartable actor's process is killed", takeover=True)
def process_killed(trial):
    pid = trial.cluster.process_of("restart-1")
    trial.begin()
    trial.cluster.kill([pid])
    trial.heal()


@event("daemon-killed", "a daemon is killed, and started again after its lease", harmed=(VICTIM,), takeover=True)
def daemon_killed(trial):
    trial.begin()
    trial.cluster.kill([trial.cluster.daemon_of(trial.victim)])
    trial.outlast_lease()
    trial.cluster.start_again(trial.victim)
    trial.heal()


@event("daemon-stopped", "a daemon is stopped for longer than its lease", harmed=(VICTIM,), takeover=True)
def daemon_stopped(trial):
    daemon = trial.cluster.daemon_of(trial.victim)
    trial.begin()
    os.kill(daemon, signal.SIGSTOP)
    trial.outlast_lease()
    os.kill(daemon, signal.SIGCONT)
    trial.heal()


@event("power-loss", "a node loses power, and starts again after its lease", harmed=(VICTIM,), takeover=True)
def power_loss(trial):
    trial.begin()
    trial.cluster.network.isolate(trial.victim)
    trial.cluster.kill_node(trial.victim)
    trial.outlast_lease()
    trial.cluster.network.heal()
    trial.cluster.start_again(trial.victim)
    trial.heal()


@event("node-frozen", "all processes of a node are stopped for two leases", harmed=(VICTIM,), takeover=True)
def node_frozen(trial):
    trial.begin()
    pids = trial.cluster.stop_node(trial.victim)
    time.sleep(max(2 * trial.cluster.lease_s, trial.cluster.lease_s + GRACE_SECONDS + BEYOND_SECONDS))
    trial.cluster.proceed(pids)
    trial.heal()


@event("link-cut", "a node is cut off from all others and from Redis", harmed=(VICTIM,), takeover=True)
def link_cut(trial):
    trial.begin()
    trial.cluster.network.isolate(trial.victim)
    trial.outlast_lease()
    trial.cluster.network.heal()
    trial.heal()


@event("one-way-cut", "what a node sends is lost, or what is sent to it (in turns)", harmed=(VICTIM,), takeover=True)
def one_way_cut(trial):
    trial.begin()
    trial.cluster.network.isolate(trial.victim, to_it=trial.number % 2 == 1, from_it=trial.number % 2 == 0)
    trial.outlast_lease()
    trial.cluster.network.heal()
    trial.heal()


@event("pair-cut", "two nodes are cut off from each other for 20 s, not from Redis", apart=("n1", VICTIM))
def pair_cut(trial):
    trial.begin()
    trial.cluster.network.cut("n1", trial.victim)
    time.sleep(20)
    trial.cluster.network.heal()
    trial.heal()


@event("redis-cut", "a node is cut off from Redis only", harmed=(VICTIM,), takeover=True)
def redis_cut(trial):
    trial.begin()
    for store in ("s1", "s2"):
        trial.cluster.network.cut(trial.victim, store)
    trial.outlast_lease()
    trial.cluster.network.heal()
    trial.heal()


@event("delay-loss", "0.1 s of delay and 2 % loss between two nodes for 15 s", quiet=True)
def delay_loss(trial):
    trial.begin()
    trial.cluster.network.disturb("n1", trial.victim, 0.1, 0.02, seed=trial.number)
    time.sleep(15)
    trial.cluster.network.heal()
    trial.heal()


def stop_redis(trial, seconds):
    store = trial.cluster.master
    trial.begin()
    store.signal(signal.SIGSTOP)
    time.sleep(seconds)
    store.signal(signal.SIGCONT)
    trial.heal()


for stop_seconds in (5, 15, 25):
    event(f"redis-stopped-{stop_seconds}", f"Redis is stopped for {stop_seconds} s", quiet=True)(
        lambda trial, seconds=stop_seconds: stop_redis(trial, seconds))


event("redis-stopped-60", "Redis is stopped for 60 s, with a lease of 90 s", quiet=True, lease_s=90)(
    lambda trial: stop_redis(trial, 60))


@event("redis-full", "Redis refuses writes for lack of memory, for longer than a lease", quiet=True)
def redis_full(trial):
    store = trial.cluster.master
    trial.begin()
    store.ask("CONFIG", "SET", "maxmemory", 1)
    trial.outlast_lease()
    store.ask("CONFIG", "SET", "maxmemory", 0)
    trial.heal()


@event("redis-restart", "Redis restarts with its data", quiet=True)
def redis_restart(trial):
    store = trial.cluster.master
    store.save()
    trial.begin()
    store.kill()
    time.sleep(1)
    store.start()
    trial.heal()


@event("redis-restart-empty", "Redis restarts without its data", quiet=True)
def redis_restart_empty(trial):
    store = trial.cluster.master
    trial.begin()
    store.kill()
    store.forget()
    time.sleep(1)
    store.start()
    trial.heal()
    trial.replace()


@event("snapshot", "Redis restarts with a snapshot from before actors were replaced", quiet=True)
def snapshot(trial):
    """Between the snapshot and the fault a named, a GPU and a restartable actor get other processes."""
    store = trial.cluster.master
    kept = trial.cluster.directory / "snapshot.rdb"
    shutil.copy(store.save(), kept)
    trial.cluster.replace_actors(["named-1", "gpu-2", "restart-3"])
    trial.begin()
    store.kill()
    shutil.copy(kept, store.directory / "dump.rdb")
    time.sleep(1)
    store.start()
    trial.heal()
    trial.replace()


@event("failover", "Redis fails, and its replica, which is some seconds behind, takes its address", quiet=True)
def failover(trial):
    cluster = trial.cluster
    cluster.network.cut("s1", "s2")
    cluster.replace_actors(["named-1", "gpu-2", "restart-3"])  # The replica does not hear of this.
    time.sleep(2)
    trial.begin()
    cluster.master.kill()
    time.sleep(2)
    cluster.promote(cluster.nodes)
    trial.heal()
    trial.replace()
    cluster.network.heal()
    cluster.spare.forget()
    cluster.spare.start(replica_of=cluster.master)


def two_masters(trial):
    cluster = trial.cluster
    old = cluster.master
    trial.begin()
    for one in ("n1", old.machine.name):
        for other in ("n2", "n3", cluster.spare.machine.name):
            cluster.network.cut(one, other)
    cluster.promote(("n2", "n3"))
    if cluster.wait_replicas:
        Store(cluster, cluster.master.machine.name, STORE_PORT + 1).start(replica_of=cluster.master)
    trial.outlast_lease()
    cluster.network.heal()
    cluster.network.lead("n1", cluster.master.machine.name)
    old.replicate(cluster.master)
    trial.heal()


event("two-masters-0", "a partition with a master on each side; no replica confirms (wait_replicas 0)",
      harmed=("n1", "n2", "n3"), risks=("nothing_is_held_twice", "no_old_process_answers"))(two_masters)
event("two-masters-1", "a partition with a master on each side; a replica confirms (wait_replicas 1)",
      harmed=("n1",), takeover=True, wait_replicas=1)(two_masters)
