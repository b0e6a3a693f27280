# SPDX-License-Identifier: Apache-2.0
"""workload.py - a cluster with the actors of fault_workload_program.c, and what their history says."""
import json
import os
import signal
import subprocess
import time

from cluster import NODES, START_SECONDS, Cluster, Failure, alive, now


class Workload(Cluster):
    """A cluster with a driver on each node."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.history = self.directory / "history"
        self.history.mkdir()
        self.drivers = {}
        self.killed = []  # Names in the history of the processes that the test has killed.
        self.continued = {}  # Name in the history of a process that the test stopped: when it was continued.
        self.offsets = {}
        self.seen = []  # All records that were read.

    def start(self):
        super().start()
        for node in NODES:
            self.start_driver(node)
        self.require_all_answer("after the start")

    def start_driver(self, node, late=False):
        machine = self.network.machines[node]
        words = [self.build / "tests" / "fault_workload_program", node[1:], self.history, *(["late"] if late else [])]
        with (self.out / f"driver-{node}.log").open("ab") as log:
            self.drivers[node] = subprocess.Popen(machine.words(*words), stdin=subprocess.DEVNULL, stdout=log,
                                                  stderr=log, env=self.environment(node))

    # ---- what the history says ----

    def read(self):
        """Reads the lines that are new in the history."""
        for path in self.history.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self.offsets.get(path, 0))
                lines = file.read()
            whole = lines.rfind(b"\n") + 1
            self.offsets[path] = self.offsets.get(path, 0) + whole
            self.seen += [json.loads(line) for line in lines[:whole].splitlines()]
        return self.seen

    def names(self):
        """Returns the names in the history of the processes that run: "driver-1:PID"."""
        return sorted(by for by in {record["by"] for record in self.read()} if alive(by.rsplit(":", 1)[1]))

    def process_of(self, role):
        """Returns the PID of the process that holds a role now."""
        for by in self.names():
            if by.startswith(role + ":"):
                return int(by.rsplit(":", 1)[1])
        raise Failure(f"no process has the role {role}")

    def unanswered(self, since):
        """Returns the pairs of callers and roles without an answer to a call that was made after `since`."""
        wanted = set()
        answered = set()
        for number in (1, 2, 3):
            roles = [f"{kind}-{number}" for kind in ("named", "restart", "gpu")]
            wanted |= {(f"driver-{number}", role) for role in [*roles, f"named-{number % 3 + 1}"]}
            wanted |= {(f"caller-{number}", role) for role in roles}
        calls = {record["id"]: record for record in self.read() if record["k"] == "call" and record["t"] > since}
        for record in self.seen:
            if record["k"] == "end" and record["status"] == 0 and record["id"] in calls:
                answered.add((record["by"].split(":")[0], calls[record["id"]]["to"]))
        return wanted - answered

    def wait_until_all_answer(self, limit_s):
        """Waits until every caller has an answer of each of its actors to a call made from now on.  Returns the pairs
        that have none after the limit."""
        since = now()
        deadline = time.monotonic() + limit_s
        while missing := self.unanswered(since):
            for node, driver in self.drivers.items():
                if driver.poll() is not None:
                    raise Failure(f"the driver on {node} has ended with {driver.returncode}; driver-{node}.log")
            if time.monotonic() > deadline:
                return missing
            time.sleep(0.1)
        return set()

    def require_all_answer(self, when):
        if missing := self.wait_until_all_answer(START_SECONDS):
            raise Failure(f"{when} these have no answer: {sorted(missing)}")

    # ---- what breaks it ----

    def kill_roles(self, roles):
        self.kill([self.process_of(role) for role in roles])
        return roles

    def replace_actors(self, roles):
        self.kill_roles(roles)
        self.require_all_answer(f"after {', '.join(roles)} were killed")

    def kill(self, pids):
        self.killed += [by for by in {record["by"] for record in self.read()} if int(by.rsplit(":", 1)[1]) in pids]
        super().kill(pids)

    def proceed(self, pids):
        at = now()
        for by in {record["by"] for record in self.read()}:
            if int(by.rsplit(":", 1)[1]) in pids:
                self.continued[by] = at
        super().proceed(pids)

    def kill_node(self, node):
        super().kill_node(node)
        self.drivers[node].wait()

    def start_again(self, node):
        """Starts the daemon of a node again, and a driver in the place of its former one."""
        if self.drivers[node].poll() is None:
            self.kill([self.drivers[node].pid])
            self.drivers[node].wait()
        super().start_again(node)
        self.start_driver(node, late=True)

    # ---- the end ----

    def drain(self, limit_s):
        """Ends the drivers in order.  Returns what went wrong, as text."""
        wrong = []
        for driver in self.drivers.values():
            driver.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + limit_s
        for node, driver in self.drivers.items():
            try:
                driver.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                wrong.append(f"the driver on {node} did not end within {limit_s} s")
                continue
            if driver.returncode != 0:
                wrong.append(f"the driver on {node} ended with {driver.returncode}")
        return wrong

    def end(self):
        super().end()
        for driver in self.drivers.values():
            driver.wait()
