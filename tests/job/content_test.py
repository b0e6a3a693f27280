#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""content_test.py - a job on two nodes of which only the first has the job library and model.config.

The second node is in a mount namespace, in which an empty file system covers the folder of the job.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from nodes_test import WORDS, by_step, require_restarted
from span_test import REPLICAS, Span, alone
from support import JOB, Process, finish, main, read_until, require, wait_for_note

EXAMPLE = JOB.parent
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
# A shell that covers the folder $0 and becomes the command after it.
HIDING = [*NAMESPACE, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']


class Divided(Span):
    """Two nodes, of which the second does not see the folder of the job; programs and job.out it does see."""

    def __init__(self, sandbox, **options):
        super().__init__(sandbox, **options)
        self.second_directory = None
        self.folder = sandbox.path / "home" / "job"
        self.folder.mkdir(parents=True)
        shutil.copy(JOB, self.folder)
        shutil.copytree(EXAMPLE / "data", self.folder / "data")
        shutil.copy(sandbox.library(), self.folder / "mine.so")
        (self.folder / "config.json").write_text("{}", encoding="utf-8")

    def start(self, words, until, more=None):
        if "second" not in words:
            return super().start(words, until, more)
        before = self.directories()
        said = super().start([*HIDING, self.folder.parent, *words], until, more)
        self.second_directory = (self.directories() - before).pop()
        return said

    def directories(self):
        """Returns the directories of all nodes."""
        return set(pathlib.Path(self.sandbox.tmp).glob("tandem-*"))

    def job(self, *words):
        """Starts the job in its own folder, which the second node does not have."""
        command = [self.sandbox.build / "tandem", "run", "job.yaml", "job.library=mine.so", "model.config=config.json",
                   "--json", "--out", self.sandbox.path / "out", "--overwrite", *WORDS, REPLICAS, *words]
        process = Process([str(word) for word in command], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=dict(self.environment, TANDEM_ADDRESS=self.address))
        process.limit_s = self.sandbox.slow * process.limit_s
        return process

    def caches(self):
        """Returns the names of the files in the cache of each node that has one."""
        return [sorted(file.name for file in cache.glob("*/*") if file.name not in ("lock", "writer"))
                for directory in self.directories() if (cache := directory / "content").is_dir()]

    def on_first_node(self, engine):
        """Returns the process of rank 0 of an engine if it is on the first node, else None."""
        node, pid = self.places()[f"engine/{engine}/0"]
        return pid if self.node_names()[node] == "first" else None


def node_without_the_files_fetches_them_once_and_learns_the_same(sandbox):
    with Divided(sandbox) as cluster:
        process = cluster.job()
        before = read_until(process, "step", 1)
        require(len({node for node, _ in cluster.places().values()}) == 2, f"places: {cluster.places()}")
        caches = cluster.caches()
        require(caches == [["config.json", "mine.so"]], f"caches: {caches}")
        code, out, err = finish(process)
        require(code == 0, f"exit code {code}: {err}")
        require(by_step(before + out) == alone(sandbox.build), "other steps than on one node")
    sandbox.require_clean()


def restarted_ranks_get_the_files_again(sandbox):
    with Divided(sandbox) as cluster:
        process = cluster.job("job.save_interval=2")
        before = read_until(process, "step", 3)
        os.kill(cluster.places()["trainer/3"][1], signal.SIGKILL)
        require_restarted(sandbox, process, before, alone)
    sandbox.require_clean()


def engine_that_is_created_after_the_library_was_replaced_has_the_same_library(sandbox):
    """The original has another hash then, so that also the first node makes a copy of what the driver has read."""
    with Divided(sandbox) as cluster:
        process = cluster.job("rollout.num_rollout=100000", "update.stall_timeout_ms=1500")
        read_until(process, "step", 1)
        engine, pid = next((engine, pid) for engine in range(2) if (pid := cluster.on_first_node(engine)))
        new = cluster.folder / "new.so"
        new.write_text("no library", encoding="utf-8")
        new.replace(cluster.folder / "mine.so")
        os.kill(pid, signal.SIGKILL)
        wait_for_note(process, f"engine {engine} back at version ")
        require(sorted(cluster.caches()) == [["config.json", "mine.so"], ["mine.so"]], f"caches: {cluster.caches()}")
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
        require(code == 130, f"exit code {code}: {err}")
    sandbox.require_clean()


def node_that_cannot_keep_a_copy_is_named_at_once(sandbox):
    with Divided(sandbox) as cluster:
        (cluster.second_directory / "content").write_text("", encoding="utf-8")
        begin = time.monotonic()
        code, _, err = finish(cluster.job())
        took_s = time.monotonic() - begin
    require(code == 1 and f"{cluster.second_directory}/content must be a directory of your own" in err,
            f"exit code {code}: {err}")
    require(took_s < 20 * sandbox.slow, f"the job took {took_s:.0f} s to end")
    sandbox.require_clean()


if __name__ == "__main__":
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: mount namespaces are not allowed")
        sys.exit(77)
    sys.exit(main([node_without_the_files_fetches_them_once_and_learns_the_same, restarted_ranks_get_the_files_again,
                   node_that_cannot_keep_a_copy_is_named_at_once,
                   engine_that_is_created_after_the_library_was_replaced_has_the_same_library]))
