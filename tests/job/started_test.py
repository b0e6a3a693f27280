#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""started_test.py - several jobs, one after the other or at the same time, on a node that outlives them."""
import os
import re
import signal
import socket
import sys

from support import ENDLESS, finish, main, numbers_of, require, steps_of, wait_for

WORDS = ["rollout.num_rollout=4", "rollout.warmup_steps=2", "job.save_interval=2", "--json"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class StartedNode:
    """A node that `tandem start` has started, with room for two jobs of four GPUs."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.environment = sandbox.environment(TANDEM_DEVICE="host")

    def __enter__(self):
        self.tandem("start", "--head", "--node-ip-address", "127.0.0.1", "--port", free_port(), "--num-gpus", 8,
                    "--num-cpus", 16, "--dashboard-port", free_port())
        self.environment["TANDEM_ADDRESS"] = "auto"
        return self

    def tandem(self, *words):
        code, out, err = finish(self.sandbox.tandem(*words, environment=self.environment))
        require(code == 0, f"tandem {words[0]}: exit code {code}: {out} {err}")

    def __exit__(self, *_):
        self.tandem("stop", "--force")

    def start(self, *words):
        return self.sandbox.start(*words, environment=self.environment)

    def run(self, *words):
        """Runs a job and returns its steps."""
        code, out, err = finish(self.start(*words))
        require(code == 0, f"{words}: exit code {code}: {err}")
        return steps_of(out)


def all_numbers(steps):
    return [numbers_of(step) for step in steps]


def versions(steps):
    return [step["version"] for step in steps]


def second_job_and_resume(sandbox):
    """A second job, one in fewer engines, and a resumed one find the record of the job before."""
    with StartedNode(sandbox) as node:
        whole = node.run("--out", "one", *WORDS)
        again = node.run("--out", "two", *WORDS)
        require(len(whole) == 4 and all_numbers(again) == all_numbers(whole), f"other numbers: {again}, not {whole}")
        require(versions(again)[0] > versions(whole)[-1], f"versions {versions(again)} after {versions(whole)}")
        fewer = node.run("--out", "few", *WORDS, "engine.num_engines=1", "engine.rollout_num_gpus_per_engine=4")
        require(versions(fewer)[0] > versions(again)[-1], f"versions {versions(fewer)} after {versions(again)}")
        process = node.start("--out", "parts", *WORDS)
        wait_for(process, "step", 1)
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
        require(code == 130, f"interrupted: exit code {code}: {err}")
        rest = node.run("--resume", "parts", *WORDS)
        require(rest and all_numbers(rest) == all_numbers(whole)[4 - len(rest):], f"other numbers: {rest}, not {whole}")
        require(versions(rest)[0] > versions(fewer)[-1], f"versions {versions(rest)} after {versions(fewer)}")


def job_after_one_that_was_killed(sandbox):
    with StartedNode(sandbox) as node:
        process = node.start("--out", "out", *WORDS)
        wait_for(process, "step", 2)
        process.send_signal(signal.SIGKILL)
        finish(process)
        rest = node.run("--resume", "out", *WORDS)
        require([step["step"] for step in rest] == [3, 4], f"steps {rest}")
        whole = node.run("--out", "whole", *WORDS)
        require(all_numbers(rest) == all_numbers(whole)[4 - len(rest):], f"other numbers: {rest}, not {whole}")


def killed_trainer_is_replaced_on_the_same_node(sandbox):
    with StartedNode(sandbox) as node:
        whole = node.run("--out", "whole", *WORDS)
        process = node.start("--out", "out", *WORDS)
        wait_for(process, "step", 1)
        (victim,) = [pid for pid, name in sandbox.processes().items() if name == "trainer/1"]
        os.kill(victim, signal.SIGKILL)
        code, out, err = finish(process)
        require(code == 0 and "restart 1 of 3" in out, f"exit code {code}: {err}\n{out}")
        require(all_numbers(steps_of(out))[-1] == all_numbers(whole)[-1], f"other numbers: {out}, not {whole}")


def two_models_at_once_and_in_turn(sandbox):
    with StartedNode(sandbox) as node:
        words = [*WORDS, "job.name=second", "update.model=critic"]
        both = [node.start("--out", "policy", *WORDS), node.start("--out", "critic", *words)]
        found = []
        for process in both:
            code, out, err = finish(process)
            require(code == 0, f"exit code {code}: {err}")
            found.append(steps_of(out))
        require(len(found[0]) == 4 and all_numbers(found[0]) == all_numbers(found[1]), f"other numbers: {found}")
        again = node.run("--out", "critic", *words, "--overwrite")
        require(all_numbers(again) == all_numbers(found[1]), f"other numbers: {again}")
        require(versions(again)[0] > versions(found[1])[-1], f"versions {versions(again)}")


def second_job_for_the_same_model_is_refused(sandbox):
    with StartedNode(sandbox) as node:
        first = node.start("--out", "first", *WORDS, *ENDLESS)
        wait_for(first, "step", 1)
        code, _, err = finish(node.start("--out", "second", *WORDS))
        require(code == 1 and re.search(r"trainer/\d", err) and "update.model" in err, f"exit code {code}: {err}")
        first.send_signal(signal.SIGINT)
        code, _, err = finish(first)
        require(code == 130, f"the first job: exit code {code}: {err}")


if __name__ == "__main__":
    sys.exit(main([second_job_and_resume, job_after_one_that_was_killed, killed_trainer_is_replaced_on_the_same_node,
                   two_models_at_once_and_in_turn, second_job_for_the_same_model_is_refused]))
