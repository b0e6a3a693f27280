#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""unreached_engine.py BUILD - the trainers and an engine are cut off from each other in the middle of an update.

The machines and the job are those of fault_soak.py: the trainers on n1, an engine on each of n2 and n3, and the program
that runs the job on n4.  An engine rank is stopped when it has received the weights of an update and has not told the
trainers so.  Then its node and theirs are cut off from each other, though not from the others, and it goes on.  The job
must not restart its ranks for this: it leaves the engine out, takes it back after the cut, and has the numbers of an
undisturbed run.
"""
import json
import os
import pathlib
import shutil
import signal
import sys
import time
import unittest

import cluster
import fault_soak
import network

LEASE_SECONDS = 5
ENGINE, RANK = 0, "engine/0/0"  # The engine, and the rank that replies to the trainers.
UPDATE = 2  # The rank is stopped in this update.
# Each update is one bucket, so that the trainers only wait for the reply of the rank.
ONE_BUCKET = "update.update_weight_buffer_size=4 MiB"
WAIT_SECONDS = 120  # Longest time of each step of the test on a busy machine.


class UpdateCluster(fault_soak.JobCluster):
    """A cluster in which the engine rank stops once."""

    def __init__(self, build, directory, out):
        super().__init__(build, directory, out, LEASE_SECONDS)
        self.stopped_at = out / "stopped"  # The failpoint makes this file.

    def environment(self, node):
        return {**super().environment(node),
                "TANDEM_FAILPOINT": f"{RANK} engine.staged {UPDATE} stop {self.stopped_at}"}

    def machine_of(self, actor):
        """Returns the name of the machine on which an actor is."""
        actors = json.loads(self.tandem("list", "actors", "--live", "--json"))
        pid, = (entry["pid"] for entry in actors if entry["name"] == actor)
        return next(name for name, machine in self.network.machines.items() if pid in machine.processes())


class UnreachedEngine(unittest.TestCase):
    build = None  # The build folder.
    directory = None  # A directory in memory, which the namespaces share.

    def setUp(self):
        self.out = self.build / "unreached-engine"  # For the job's output and the logs.
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        self.cluster = UpdateCluster(self.build, self.directory, self.out)
        self.addCleanup(self.cluster.end)
        self.cluster.start()
        self.job = fault_soak.Job(self.cluster, self.out / "disturbed", more=[ONE_BUCKET])

    def wait_for(self, holds, what):
        deadline = time.monotonic() + WAIT_SECONDS
        while not (found := holds()):
            self.assertTrue(self.job.runs(), (self.out / "disturbed.stderr").read_text(encoding="utf-8"))
            self.assertLess(time.monotonic(), deadline, f"{what}; notes: {self.job.notes}")
            time.sleep(0.05)
        return found

    def test_job_leaves_the_engine_out_and_does_not_restart(self):
        rank = self.wait_for(lambda: cluster.stopped_process(self.cluster.stopped_at),
                             f"{RANK} has not received update {UPDATE}")
        machine = self.cluster.machine_of(RANK)
        self.assertNotEqual(machine, fault_soak.TRAINERS_NODE)
        self.cluster.network.cut(fault_soak.TRAINERS_NODE, machine)
        os.kill(rank, signal.SIGCONT)
        self.wait_for(lambda: ENGINE in self.job.lost or self.job.restarts, f"engine {ENGINE} was not left out")
        self.assertTrue(self.job.wait_for_step_after(time.monotonic(), WAIT_SECONDS))
        self.cluster.network.heal()
        self.wait_for(lambda: not self.job.lost, f"engine {ENGINE} has not come back")
        self.assertTrue(self.job.wait_for_step_after(time.monotonic(), WAIT_SECONDS))
        self.assertIn(self.job.interrupt(), (0, 130))
        self.assertEqual(self.job.restarts, 0, self.job.notes)
        self.assertEqual(self.job.repeated, [])
        self.assertEqual(fault_soak.compare(self.cluster, self.job), [])


if __name__ == "__main__":
    UnreachedEngine.build = pathlib.Path(sys.argv[1]).resolve()
    UnreachedEngine.directory = network.enter()
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
