# SPDX-License-Identifier: Apache-2.0
"""Processes that actors start: they work, and they end with their actor, however it ends."""
import math
import multiprocessing
import os
import signal
import subprocess
import time

import pytest

import tandem
from tandem import ray
from tandem.ray import exceptions

METHODS = ["fork", "spawn", "forkserver"]


@ray.remote
class Parent:
    def __init__(self):
        self.children = []

    def pid(self):
        return os.getpid()

    def compute(self, method):
        """The square roots, computed in a pool of two processes."""
        with multiprocessing.get_context(method).Pool(2) as pool:
            return pool.map(math.sqrt, [1, 4, 9])

    def start(self, method):
        """Start a process that sleeps, in the way of multiprocessing, and return its pid."""
        process = multiprocessing.get_context(method).Process(
            target=time.sleep, args=(1000,), daemon=True)
        process.start()
        self.children.append(process)
        return process.pid

    def start_session(self):
        """Start a program in a session of its own and return its pid."""
        process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        self.children.append(process)
        return process.pid

    def start_orphan(self):
        """Start a program whose parent ends at once, without environment, and return its pid."""
        command = "setsid sleep 1000 > /dev/null 2>&1 & echo $!"
        return int(subprocess.run(["sh", "-c", command], env={"PATH": os.environ["PATH"]},
                                  capture_output=True, check=True).stdout)

    def run_orphans(self, count):
        """Start programs that end as orphans; return how many zombies this process has then."""
        for _ in range(count):
            subprocess.run(["sh", "-c", "true &"], check=True)
        time.sleep(0.2)
        zombies = 0
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/stat") as file:
                    fields = file.read().rsplit(")", 1)[1].split()
            except (OSError, IndexError):
                continue
            zombies += fields[0] == "Z" and int(fields[1]) == os.getpid()
        return zombies

    def watch(self, pid):
        tandem.actor_watch(pid)

    def unwatch_and_end(self, pid):
        tandem.actor_unwatch(pid)
        os.kill(pid, signal.SIGKILL)

    def variables(self):
        return [name for name in os.environ if name.startswith("TANDEM_WORKER")]

    def sleep(self):
        time.sleep(1000)

    def leave(self):
        ray.actor.exit_actor()

    def crash(self):
        os._exit(3)


def exists(pid):
    """Whether there is a process with that number, also as a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def await_ends(pids):
    deadline = time.monotonic() + 10
    while any(exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert [pid for pid in pids if exists(pid)] == []


def start_all(parent):
    """Start one process in each way and return their pids."""
    calls = [parent.start.remote(method) for method in METHODS]
    pids = ray.get(calls + [parent.start_session.remote(), parent.start_orphan.remote()])
    assert all(exists(pid) for pid in pids)
    return pids


@pytest.mark.parametrize("method", METHODS)
def test_multiprocessing_works(method):
    parent = Parent.remote()
    assert ray.get(parent.compute.remote(method)) == [1, 2, 3]


@pytest.mark.parametrize("forked", [False, True])
def test_kill_ends_all_processes(forked):
    parent = Parent.remote()
    if forked:
        parent = Parent.remote()
    pids = start_all(parent) + [ray.get(parent.pid.remote())]
    ray.kill(parent)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(parent.sleep.remote())
    await_ends(pids)


def test_processes_have_ended_when_a_crash_is_known():
    parent = Parent.remote()
    pids = start_all(parent)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(parent.crash.remote())
    assert [pid for pid in pids if exists(pid)] == []


def test_signal_ends_all_processes():
    parent = Parent.remote()
    pids = start_all(parent)
    os.kill(ray.get(parent.pid.remote()), signal.SIGKILL)
    with pytest.raises(exceptions.ActorDiedError):
        ray.get(parent.sleep.remote())
    assert [pid for pid in pids if exists(pid)] == []


def test_exit_ends_all_processes():
    parent = Parent.remote()
    pids = start_all(parent)
    parent.leave.remote()
    await_ends(pids)


def test_last_handle_ends_all_processes():
    parent = Parent.remote()
    pids = start_all(parent)
    del parent
    await_ends(pids)


def test_processes_of_others_live_on():
    parents = [Parent.remote(), Parent.remote()]
    pids = [start_all(parent) for parent in parents]
    ray.kill(parents[0])
    await_ends(pids[0])
    assert all(exists(pid) for pid in pids[1])


def test_orphans_that_end_leave_no_zombies():
    assert ray.get(Parent.remote().run_orphans.remote(5)) == 0


def test_children_do_not_take_themselves_for_workers():
    first = Parent.remote()
    assert ray.get(first.variables.remote()) == []
    assert ray.get(Parent.remote().variables.remote()) == []


def test_watched_process_ends_the_actor():
    parent = Parent.remote()
    pid = ray.get(parent.start_session.remote())
    ray.get(parent.watch.remote(pid))
    waiting = parent.sleep.remote()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(exceptions.ActorDiedError, match=f"its process {pid} "):
        ray.get(waiting)


def test_watch_may_be_ended():
    parent = Parent.remote()
    pid = ray.get(parent.start_session.remote())
    ray.get(parent.watch.remote(pid))
    ray.get(parent.unwatch_and_end.remote(pid))
    time.sleep(0.1)
    assert ray.get(parent.pid.remote()) > 0


def test_driver_watches_nothing():
    with pytest.raises(Exception, match="this process is a driver"):
        tandem.actor_watch(os.getpid())
    with pytest.raises(TypeError):
        tandem.actor_watch("no number")
