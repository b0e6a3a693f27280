#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""restart_test.py - a job that loses a trainer, all engines, its daemon or its store goes on from the last saved step
by itself, with the numbers of an undisturbed job.
"""
import functools
import json
import os
import re
import signal
import sys
import time

from support import Sandbox, finish, main, notes_of, numbers_of, read_until, require, steps_of

SIX = ["rollout.num_rollout=6", "rollout.warmup_steps=2"]
SAVED = [*SIX, "job.save_interval=2"]


@functools.cache
def undisturbed(build):
    """Returns the results of each step of a job that nothing happens to."""
    sandbox = Sandbox(build)
    code, out, err = sandbox.run("--json", "--out", "out", *SIX)
    sandbox.destroy()
    require(code == 0, f"exit code {code}: {err}")
    return {step["step"]: numbers_of(step) for step in steps_of(out)}


def find(sandbox, name):
    """Returns the process ID of the only process with this name."""
    found = [pid for pid, other in sandbox.processes().items() if other == name]
    require(len(found) == 1, f"processes {name}: {sandbox.processes()}")
    return found[0]


def restarts_of(notes):
    return [note for note in notes if note.startswith("restart ")]


def run_with(sandbox, words, strike, after=3, begun=0, warned=lambda: ""):
    """Runs a job whose first `begun` steps are done, calls strike() after the step `after`, and returns its notes.
    Each step, also a repeated one, must have the numbers of an undisturbed job, and stderr the text that warned()
    returns."""
    wanted = undisturbed(sandbox.build)
    process = sandbox.start("--json", "--out", "out", *words)
    before = read_until(process, "step", after)
    strike()
    code, out, err = finish(process)
    out = before + out
    require(code == 0, f"exit code {code}: {err}\n{out}")
    require(warned() in err, f"{warned()!r} is missing in: {err}")
    for step in steps_of(out):
        require(numbers_of(step) == wanted[step["step"]], f"other numbers: {step}, not {wanted[step['step']]}")
    # A step that ends with a checkpoint but without its update is not shown.
    resumed = {int(number) for number in re.findall(r"resuming \S+ after step (\d+)", out)}
    shown = {step["step"] for step in steps_of(out)} | resumed
    require(shown | set(range(begun + 1)) == {0, *wanted}, f"steps: {out}")
    require(steps_of(out)[-1]["step"] == len(wanted), f"the last step: {out}")
    versions = [step["version"] for step in steps_of(out)]
    require(versions == sorted(set(versions)), f"versions {versions} do not grow")
    sandbox.require_clean()
    return notes_of(out)


def killer(sandbox, name, number=signal.SIGKILL):
    return lambda: os.kill(find(sandbox, name), number)


def require_resumed(notes, cause, step=2):
    """Checks that the job has said what it did: the cause, the checkpoint, and the steps that it repeats."""
    restarts = restarts_of(notes)
    require(len(restarts) == 1 and re.match(rf"restart 1 of 3 after step (\d), because .*{cause}", restarts[0]),
            f"no restart because of {cause!r}: {notes}")
    reached = int(re.match(r"restart 1 of 3 after step (\d)", restarts[0])[1])
    said = [re.match(r"resuming out/checkpoint after step (\d); steps repeated: (\d)$", note) for note in notes]
    (resumed, repeated), = [(int(match[1]), int(match[2])) for match in said if match]
    require(reached >= step and resumed % 2 == 0 and resumed + repeated == reached and repeated <= 2, f"{notes}")


def killed_trainer_rank(sandbox):
    notes = run_with(sandbox, SAVED, killer(sandbox, "trainer/2"))
    require_resumed(notes, "actor trainer/2 died: node .*, signal 9")


def stopped_trainer_rank(sandbox):
    stall_ms = int(1500 * sandbox.slow)
    notes = run_with(sandbox, [*SAVED, f"trainer.stall_timeout_ms={stall_ms}"],
                     killer(sandbox, "trainer/1", signal.SIGSTOP))
    require_resumed(notes, f"actor trainer/1 has not replied for {stall_ms} ms")


def killed_daemon(sandbox):
    notes = run_with(sandbox, SAVED, killer(sandbox, "tandemd"))
    require_resumed(notes, "the daemon .*signal 9")


def stopped_daemon(sandbox):
    stall_ms = int(3000 * sandbox.slow)
    begin = time.monotonic()
    notes = run_with(sandbox, [*SAVED, f"trainer.stall_timeout_ms={stall_ms}"],
                     killer(sandbox, "tandemd", signal.SIGSTOP))
    require_resumed(notes, rf"the daemon of node .* \(pid \d+\) has not replied for {stall_ms} ms")
    require(time.monotonic() - begin < 30 * sandbox.slow, f"took {time.monotonic() - begin:.0f} s")


def too_few_engines(sandbox):
    notes = run_with(sandbox, [*SAVED, "rollout.num_engines_min=2"], killer(sandbox, "engine/1/0"))
    require_resumed(notes, "actor engine/1/0 died")


def stopped_store(sandbox):
    """The daemon kills and restarts a store that does not reply, and says so; the job only waits for it."""
    store = []

    def strike():
        store.append(find(sandbox, "tandem-store"))
        os.kill(store[0], signal.SIGSTOP)

    def warned():
        return f"tandem-store (pid {store[0]}) has not replied for 5000 ms: it is killed and started again"
    notes = run_with(sandbox, SIX, strike, warned=warned)
    require(not restarts_of(notes), f"restarted: {notes}")


def without_a_checkpoint_it_begins_at_step_0(sandbox):
    notes = run_with(sandbox, [*SIX, "job.save_interval=0"], killer(sandbox, "trainer/0"))
    require(len(restarts_of(notes)) == 1, f"{notes}")
    require(any(re.match(r"starting again from step 0, because no checkpoint was saved; steps repeated: [3-6]$", note)
                for note in notes), f"{notes}")


def killed_trainer_of_a_resumed_job(sandbox):
    """A job that was resumed into another folder, and has saved nothing yet, resumes the same checkpoint again."""
    process = sandbox.start("--json", "--out", "first", *SIX)
    read_until(process, "step", 1)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    require(code == 130, f"exit code {code}: {err}")
    state = json.loads((sandbox.path / "first/checkpoint/state.json").read_text(encoding="utf-8"))
    notes = run_with(sandbox, [*SIX, "job.save_interval=0", "--resume", "first"], killer(sandbox, "trainer/3"),
                     after=state["step"] + 1, begun=state["step"])
    require(any(note.startswith(f"resuming first/checkpoint after step {state['step']}; steps repeated: ")
                for note in notes), f"{notes}")


def restarts_are_limited(sandbox):
    process = sandbox.start("--json", "--out", "out", *SAVED, "rollout.num_rollout=1000", "job.max_restarts=1")
    before = ""
    for after in (1, 3):
        before += read_until(process, "step", after)
        os.kill(find(sandbox, "trainer/2"), signal.SIGKILL)
        if after == 1:
            before += read_until(process, "step", 1)
    code, out, err = finish(process)
    require(code == 1 and "after 1 of 1 restarts (job.max_restarts)" in err and "actor trainer/2 died" in err,
            f"exit code {code}: {err}")
    require(len(restarts_of(notes_of(before + out))) == 1, f"{notes_of(before + out)}")
    sandbox.require_clean()


if __name__ == "__main__":
    sys.exit(main([killed_trainer_rank, stopped_trainer_rank, killed_daemon, stopped_daemon, too_few_engines,
                   stopped_store, without_a_checkpoint_it_begins_at_step_0, killed_trainer_of_a_resumed_job,
                   restarts_are_limited]))
