#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill_test.py - kills processes of a job at random times: the job names the process, continues without
an engine or fails, and leaves nothing behind.

TANDEM_KILLS sets how many moments of each kind (3); TANDEM_SEED sets another seed (20261123).
"""
import functools
import os
import random
import re
import signal
import sys
import time

from support import (ENDLESS, SHORT, Failure, Sandbox, finish, main, notes_of, numbers_of, read_until, require,
                     steps_of, wait_for)

SEED = int(os.environ.get("TANDEM_SEED", "20261123"))
KILLS = int(os.environ.get("TANDEM_KILLS", "3"))
TOLD_S = 2.0
STEP_S = 0.15  # Typical seconds of a step.
STALL_MS = 1500
SIX = ["rollout.num_rollout=6", "rollout.warmup_steps=2"]
ALL_ENGINES = ["rollout.num_engines_min=2"]
ONCE = ["job.max_restarts=0"]  # The job ends with the first failure.


def six(sandbox):
    """Returns arguments for a job of six steps with timeouts that suit this build."""
    return [*SIX, f"update.stall_timeout_ms={int(4000 * sandbox.slow)}"]


def find(sandbox, name):
    """Returns the process IDs of the sandbox's processes with that name."""
    return [pid for pid, found in sandbox.processes().items() if found == name]


def kill_at_a_moment(sandbox, chance, choose, prepare):
    """Starts a job and kills the process that choose() returns during a step. Returns (its pid, exit
    code, seconds until the job ended, stderr)."""
    process = sandbox.start("--json", "--out", "out", *ENDLESS, *ALL_ENGINES, *ONCE, **prepare(sandbox))
    wait_for(process, "step", 1)
    victims = choose(sandbox, process)
    require(victims, f"nobody to kill among {sandbox.processes()}")
    time.sleep(chance.uniform(0, 2 * STEP_S * sandbox.slow))
    begin = time.monotonic()
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    code, _, err = finish(process)
    return victims[0], code, time.monotonic() - begin, err


def require_clean(sandbox):
    sandbox.require_clean()


def each_moment(sandbox, kind, choose, check, after=require_clean, prepare=lambda sandbox: {}):
    chance = random.Random(f"{SEED} {kind}")
    wrong = []
    for number in range(KILLS):
        try:
            victim, code, took_s, err = kill_at_a_moment(sandbox, chance, choose, prepare)
            require(took_s <= TOLD_S * sandbox.slow, f"told after {took_s:.1f} s: {err}")
            check(victim, code, err)
            print(f"        {kind} {number}: {took_s * 1000:.0f} ms: {err.strip()}")
            after(sandbox)
        except Failure as failure:
            wrong.append(f"{kind} {number}: {failure}")
            sandbox.clear()
    require(not wrong, f"{len(wrong)} of {KILLS} (TANDEM_SEED={SEED}):\n" + "\n".join(wrong))


def rank_died(name):
    def check(victim, code, err):
        require(code == 1, f"exit code {code}: {err}")
        wanted = rf"actor {name} died: node \S+, pid {victim}, signal 9 \(killed\)"
        require(re.search(wanted, err), f"does not match {wanted!r}: {err!r}")
        require(re.search(r"\b(ROLLOUT|TRAIN|UPDATE|OFFLOAD_\w+|RESUME_\w+|trace), step \d+", err),
                f"no phase and step: {err!r}")
    return check


def node_died(victim, code, err):
    require(code == 1, f"exit code {code}: {err}")
    require(str(victim) in err and "signal 9" in err, f"does not name pid {victim} and its signal: {err!r}")


def warden_died(_, code, err):
    require(code == 1, f"exit code {code}: {err}")
    require("supervisor" in err or "tandemd" in err or "node" in err, f"does not say who died: {err!r}")


def require_swept(sandbox):
    """Checks that the next node removes the folder that a killed supervisor left."""
    sandbox.require_clean(but="$TMPDIR/tandem-")
    code, _, err = sandbox.run("--out", "out", *SHORT)
    require(code == 0, f"the next job: exit code {code}: {err}")
    sandbox.require_clean()


def driver_died(_, code, err):
    require(code == -signal.SIGKILL, f"exit code {code}: {err}")


@functools.cache
def steps_without_kill(build):
    """Returns the results of each step by its number."""
    sandbox = Sandbox(build)
    code, out, err = sandbox.run("--json", "--out", "out", *SIX)
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return {step["step"]: numbers_of(step) for step in steps_of(out)}


def goes_on(sandbox, wanted, words, strike, lost):
    """Checks that the steps of a job have the same results after strike(), and that it reports which
    engine was lost and restarted."""
    process = sandbox.start("--json", "--out", "out", *six(sandbox), *words)
    before = read_until(process, "step", 1)
    victim = strike()
    code, out, err = finish(process)
    out = before + out
    require(code == 0, f"exit code {code}: {err}")
    found = {step["step"]: numbers_of(step) for step in steps_of(out)}
    require(found == wanted, f"other steps: {found}, not {wanted}")
    told = [note for note in notes_of(out) if re.search(lost.format(victim), note)]
    require(len(told) == 1, f"{len(told)} notes like {lost.format(victim)!r}: {notes_of(out)}")
    engine = told[0].split()[1]
    back = [note for note in notes_of(out) if re.search(rf"^engine {engine} back at version \d+$", note)]
    require(len(back) == 1, f"{len(back)} notes that engine {engine} is back: {notes_of(out)}")
    sandbox.require_clean()


def at_a_moment(sandbox, chance, name, number):
    def strike():
        time.sleep(chance.uniform(0, 2 * STEP_S * sandbox.slow))
        victims = find(sandbox, name)
        require(len(victims) == 1, f"no {name} among {sandbox.processes()}")
        os.kill(victims[0], number)
        return victims[0]
    return strike


def job_continues_after_an_engine_is_killed(sandbox):
    wanted = steps_without_kill(sandbox.build)
    chance = random.Random(f"{SEED} engine")
    for number in range(KILLS):
        name = f"engine/{number % 2}/{chance.randrange(2)}"
        goes_on(sandbox, wanted, [], at_a_moment(sandbox, chance, name, signal.SIGKILL),
                rf"^engine {number % 2} lost: actor {name} died: node \S+, pid {{}}, signal 9 \(killed\)"
                r".*; 1 of 2 goes on$")


def job_continues_after_an_engine_is_stopped(sandbox):
    stall_ms = int(STALL_MS * sandbox.slow)
    goes_on(sandbox, steps_without_kill(sandbox.build), [f"update.stall_timeout_ms={stall_ms}"],
            at_a_moment(sandbox, random.Random(f"{SEED} stop"), "engine/1/1", signal.SIGSTOP),
            rf"^engine 1 lost: actor engine/1/1 has not replied for {stall_ms} ms; 1 of 2 goes on$")


def engine_recovers_although_it_is_killed_while_joining(sandbox):
    """Kills an engine after it has copied weights and before it reported them: the next attempt succeeds."""
    wanted = steps_without_kill(sandbox.build)
    for step in ["engine.pulled", "engine.joined", "engine.pull"][:KILLS]:
        broken = sandbox.path / step
        process = sandbox.start("--json", "--out", "out", *six(sandbox),
                              environment=sandbox.environment(TANDEM_FAILPOINT=f"engine/1/1 {step} 1 kill {broken}"))
        before = read_until(process, "step", 1)
        victims = find(sandbox, "engine/1/0")
        require(len(victims) == 1, f"no engine/1/0 among {sandbox.processes()}")
        os.kill(victims[0], signal.SIGKILL)
        code, out, err = finish(process)
        out = before + out
        require(code == 0, f"{step}: exit code {code}: {err}")
        require(broken.exists(), f"nobody passed {step}: {notes_of(out)}")
        require({step["step"]: numbers_of(step) for step in steps_of(out)} == wanted, f"{step}: other steps")
        told = [" ".join(note.split()[:3]) for note in notes_of(out) if note.startswith("engine 1 ")]
        require(told == ["engine 1 lost:", "engine 1 lost:", "engine 1 back"], f"{step}: {notes_of(out)}")
        sandbox.require_clean()


def all_engines_are_killed_and_come_back_with_the_trainers_weights(sandbox):
    chance = random.Random(f"{SEED} all")
    wanted = steps_without_kill(sandbox.build)
    for _ in range(KILLS):
        process = sandbox.start("--json", "--out", "out", *six(sandbox))
        before = read_until(process, "step", 1)
        time.sleep(chance.uniform(0, 2 * STEP_S * sandbox.slow))
        for name in ("engine/0/1", "engine/1/0"):
            for pid in find(sandbox, name):
                os.kill(pid, signal.SIGKILL)
        code, out, err = finish(process)
        out = before + out
        require(code == 0, f"exit code {code}: {err}")
        require({step["step"]: numbers_of(step) for step in steps_of(out)} == wanted, "other steps")
        told = sorted(" ".join(note.split()[:3]) for note in notes_of(out) if note.startswith("engine "))
        require(told == ["engine 0 back", "engine 0 lost:", "engine 1 back", "engine 1 lost:"], f"{notes_of(out)}")
        sandbox.require_clean()


def the_only_engine_is_killed_and_comes_back_with_the_trainers_weights(sandbox):
    """Kills at failpoints of an update, between two rollouts, and at a random time: the steps have the same results."""
    words = [*six(sandbox), "engine.num_engines=1", "engine.rollout_num_gpus_per_engine=4"]
    code, out, err = sandbox.run("--json", "--out", "whole", *words)
    require(code == 0, f"exit code {code}: {err}")
    wanted = {step["step"]: numbers_of(step) for step in steps_of(out)}
    for step in ["engine.trace", "engine.vote", "engine.flip", "engine.acquire_shadow"][:KILLS + 1]:
        broken = sandbox.path / step
        breaks = sandbox.environment(TANDEM_FAILPOINT=f"engine/0/2 {step} 3 kill {broken}")
        code, out, err = sandbox.run("--json", "--out", "out", *words, environment=breaks)
        require(code == 0 and broken.exists(), f"{step}: exit code {code}: {err}")
        require({step["step"]: numbers_of(step) for step in steps_of(out)} == wanted, f"{step}: other steps")
        told = [" ".join(note.split()[:3]) for note in notes_of(out) if note.startswith("engine 0 ")]
        require(told == ["engine 0 lost:", "engine 0 back"], f"{step}: {notes_of(out)}")
        sandbox.require_clean()
    chance = random.Random(f"{SEED} only")
    goes_on(sandbox, wanted, words, at_a_moment(sandbox, chance, f"engine/0/{chance.randrange(4)}", signal.SIGKILL),
            r"^engine 0 lost: actor engine/0/\d died: node \S+, pid {}, signal 9 \(killed\).*; 0 of 1 are left$")


def with_too_few_engines_the_job_ends(sandbox):
    each_moment(sandbox, "engine", lambda sandbox, process: find(sandbox, "engine/1/0"),
                rank_died("engine/1/0"))


def killed_trainer_rank_ends_the_job(sandbox):
    each_moment(sandbox, "trainer", lambda sandbox, process: find(sandbox, "trainer/2"),
                rank_died("trainer/2"))


def stopped_trainer_rank_ends_the_job(sandbox):
    """Stops a trainer, like a machine that only pages: the job ends long before the call's timeout."""
    stall_ms = int(STALL_MS * sandbox.slow)
    process = sandbox.start("--json", "--out", "out", *ENDLESS, *ONCE, f"trainer.stall_timeout_ms={stall_ms}")
    wait_for(process, "step", 1)
    os.kill(find(sandbox, "trainer/2")[0], signal.SIGSTOP)
    begin = time.monotonic()
    code, _, err = finish(process)
    took_s = time.monotonic() - begin
    require(code == 1 and f"actor trainer/2 has not replied for {stall_ms} ms" in err, f"exit code {code}: {err}")
    require(took_s < 20 * sandbox.slow, f"told after {took_s:.1f} s")
    sandbox.require_clean()


def the_daemon_is_killed(sandbox):
    each_moment(sandbox, "daemon", lambda sandbox, process: find(sandbox, "tandemd"), node_died)


def the_warden_is_killed(sandbox):
    each_moment(sandbox, "supervisor", lambda sandbox, process: find(sandbox, "tandem-super"), warden_died,
                require_swept)


def the_driver_is_killed(sandbox):
    each_moment(sandbox, "driver", lambda sandbox, process: [process.pid], driver_died)


def daemon_and_driver_are_killed_together(sandbox):
    each_moment(sandbox, "both",
                lambda sandbox, process: find(sandbox, "tandemd") + [process.pid], driver_died)


def the_store_is_killed_and_the_job_goes_on(sandbox):
    chance = random.Random(f"{SEED} store")
    for _ in range(KILLS):
        process = sandbox.start("--json", "--out", "out", *ENDLESS)
        wait_for(process, "step", 1)
        time.sleep(chance.uniform(0, 2 * STEP_S * sandbox.slow))
        store = find(sandbox, "tandem-store")
        require(len(store) == 1, f"stores: {store}")
        os.kill(store[0], signal.SIGKILL)
        wait_for(process, "step", 20)
        require(find(sandbox, "tandem-store") != store, "the store was not started anew")
        process.send_signal(signal.SIGINT)
        code, _, err = finish(process)
        require(code == 130, f"exit code {code}: {err}")
        sandbox.require_clean()


def with_detached_child(sandbox):
    """Runs a job whose engine/0/0 has started a process in another session."""
    return dict(library=sandbox.build / "tests" / "detached_library.so",
                environment=sandbox.environment(TANDEM_TEST_JOB=str(sandbox.library())))


def detached_child_of_a_killed_rank_ends_with_it(sandbox):
    each_moment(sandbox, "detached", lambda sandbox, process: find(sandbox, "engine/0/0"), rank_died("engine/0/0"),
                prepare=with_detached_child)


def detached_child_ends_with_a_killed_driver(sandbox):
    process = sandbox.start("--json", "--out", "out", *ENDLESS, **with_detached_child(sandbox))
    wait_for(process, "step", 1)
    require(len(find(sandbox, "sleep")) == 1, f"no detached child among {sandbox.processes()}")
    process.kill()
    finish(process)
    sandbox.require_clean()


if __name__ == "__main__":
    print(f"TANDEM_SEED={SEED} TANDEM_KILLS={KILLS}")
    sys.exit(main([job_continues_after_an_engine_is_killed, job_continues_after_an_engine_is_stopped,
                   engine_recovers_although_it_is_killed_while_joining,
                   all_engines_are_killed_and_come_back_with_the_trainers_weights,
                   the_only_engine_is_killed_and_comes_back_with_the_trainers_weights,
                   with_too_few_engines_the_job_ends, killed_trainer_rank_ends_the_job,
                   stopped_trainer_rank_ends_the_job, the_daemon_is_killed,
                   the_warden_is_killed, the_driver_is_killed, daemon_and_driver_are_killed_together,
                   the_store_is_killed_and_the_job_goes_on, detached_child_of_a_killed_rank_ends_with_it,
                   detached_child_ends_with_a_killed_driver]))
