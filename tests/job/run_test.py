#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_test.py - a short job completes, resumes from a checkpoint, and obeys its options."""
import filecmp
import json
import os
import pathlib
import pty
import signal
import sys
import time

from support import (ENDLESS, JOB, SHORT, finish, main, numbers_of, require, steps_of, wait_for, wait_for_note)

DIFFERENCE_MAX = 5e-5
DIFFERENCE_MEAN = 1e-6
LONG_STEP = ["rollout.warmup_steps=0", "rollout.rollout_batch_size=2048", "rollout.n_samples_per_prompt=64"]
PHASES = {"ROLLOUT", "OFFLOAD_ENGINE", "TRAIN", "OFFLOAD_TRAINER", "UPDATE", "RESUME_ENGINE"}
ROWS = {
    "job": (PHASES, 1),
    "trainer": ({"resume parameters", "resume optimizer", "step", "pause parameters", "write bucket 0"}, 4),
    "engines": ({"generate", "resume weights", "resume kv_cache", "pause kv_cache", "stage bucket", "flip"}, 4),
}


def pipe_gets_one_plain_line_a_step(sandbox):
    code, out, err = sandbox.run("--out", "out", *SHORT)
    require(code == 0, f"exit code {code}: {err}")
    require("\x1b" not in out and "\r" not in out and "━" not in out, f"not plain: {out!r}")
    lines = out.splitlines()
    require(lines[0].startswith("tandem ") and "  job out  redis embedded  4 virtual GPUs × " in lines[0],
            f"first line: {lines[0]}")
    require("gather groups {0,1}→0 {2,3}→2" in lines[1], f"second line: {lines[1]}")
    require(sum(line.startswith("step ") for line in lines) == 4, f"not four steps: {out}")
    require(lines[-1].startswith("reward ") and "trace out/trace.json" in lines[-1], f"last line: {lines[-1]}")
    require(err == "", f"stderr: {err}")
    for name in ("hf/config.json", "hf/model.safetensors", "hf/tokenizer.json", "checkpoint/state.json"):
        require((sandbox.path / "out" / name).is_file(), f"no {name}")
    sandbox.require_clean()


def engines_agree_with_the_trainer_at_every_step(sandbox, *settings):
    code, out, err = sandbox.run("--json", "--out", "out", *SHORT, *settings)
    require(code == 0, f"exit code {code}: {err}")
    steps = steps_of(out)
    require([step["step"] for step in steps] == [1, 2, 3, 4], f"steps: {out}")
    for step in steps:
        metrics = step["metrics"]
        require(0 < metrics["logprob_diff_max"] <= DIFFERENCE_MAX, f"step {step['step']}: {metrics}")
        require(0 < metrics["logprob_diff_mean"] <= DIFFERENCE_MEAN, f"step {step['step']}: {metrics}")
    versions = [step["version"] for step in steps]
    require(versions == sorted(set(versions)), f"versions {versions} do not grow")


def right_engines_are_within_a_tolerance(sandbox):
    code, out, err = sandbox.run("--json", "--out", "out", *SHORT, f"update.logprob_tolerance={DIFFERENCE_MAX}")
    require(code == 0 and "lost" not in out and "repeated" not in out, f"exit code {code}: {out}{err}")
    for step in steps_of(out):
        # One sample of each prompt is compared, so that the trainer finds at least as large a difference.
        metrics = step["metrics"]
        require(0 < metrics["engine_logprob_diff"] <= 1.01 * metrics["logprob_diff_max"], f"{metrics}")
    trace = (sandbox.path / "out" / "trace.json").read_text(encoding="utf-8")
    require("compare logprobs" in trace, "nothing was compared")
    # No engine is so close, so that the step is repeated until no engine is restarted.
    code, out, err = sandbox.run("--out", "out", *SHORT, "update.logprob_tolerance=1e-12", "update.mode=copy")
    require(code == 1 and "no engine computes as the trainer does" in err, f"exit code {code}: {out}{err}")
    require("step 1 is repeated: 2 of 2 engines are over" in out, f"no repeated step: {out}")


def they_agree_also_by_way_of_the_disk(sandbox):
    engines_agree_with_the_trainer_at_every_step(sandbox, "update.source=disk")
    trace = (sandbox.path / "out" / "trace.json").read_text(encoding="utf-8")
    require("stage file" in trace and "stage bucket" not in trace, "the weights did not come from the file")


def model_is_written_and_read_in_several_files(sandbox):
    engines_agree_with_the_trainer_at_every_step(sandbox, "update.source=disk", "trainer.max_shard_kib=64")
    hf = sandbox.path / "out" / "hf"
    index = json.loads((hf / "model.safetensors.index.json").read_text(encoding="utf-8"))
    files = {path.name for path in hf.glob("*.safetensors")}
    require(len(files) > 1 and files == set(index["weight_map"].values()), f"files {files}, in the index {index}")
    code, _, err = sandbox.run("--json", "--out", "next", *SHORT, f"model.path={hf}")
    require(code == 0, f"from these files: exit code {code}: {err}")


def the_trace_has_every_phase_on_every_row(sandbox):
    code, _, err = sandbox.run("--out", "out", *SHORT)
    require(code == 0, f"exit code {code}: {err}")
    events = json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    seen = {}
    for event in events:
        if event["ph"] == "X":
            require(event["dur"] >= 0, f"negative duration: {event}")
            seen.setdefault((names[event["pid"]], event["tid"]), set()).add(event["name"])
    for process, (wanted, rows) in ROWS.items():
        found = sorted(row for row in seen if row[0] == process)
        require(len(found) == rows, f"{process}: {len(found)} rows of {rows}")
        for row in found:
            require(wanted <= seen[row], f"{row}: no {sorted(wanted - seen[row])} among {sorted(seen[row])}")


def plan_of(sandbox, *settings):
    process = sandbox.tandem("plan", JOB, f"job.library={sandbox.library()}", *settings, "--json")
    code, out, err = finish(process)
    require(code == 0, f"tandem plan: exit code {code}: {err}")
    return {moment["name"]: moment["gpus"] for moment in json.loads(out)["moments"]}


def require_equal(found, wanted, what):
    require(found == wanted, f"{what}: the trace has {found} bytes, the plan {wanted}")


def the_bytes_of_updates_are_the_plan_s(sandbox, *settings):
    code, _, err = sandbox.run("--out", "out", *SHORT, *settings)
    require(code == 0, f"exit code {code}: {err}")
    events = json.loads((sandbox.path / "out" / "trace.json").read_text(encoding="utf-8"))
    plan = next(event["args"] for event in events if event["name"] == "update plan")
    updates = sum(event["name"] == "flip" for event in events) // 4
    moved = {"same GPU": 0, "other GPUs": 0}
    staged = 0
    for event in events:
        if event["name"].startswith("write bucket"):
            require(event["args"]["from"] == f"trainer/{event['tid']}" and event["args"]["checksum"],
                    f"not whose bytes these are: {event}")
            moved[event["args"]["to"]] += event["args"]["bytes"]
        elif event["name"] == "stage bucket":
            staged += event["args"]["bytes"]
    require(updates == 5 and plan["same_gpu_bytes"] > 0, f"{updates} updates of {plan}")
    require_equal(moved["same GPU"], updates * plan["same_gpu_bytes"], "on the same GPU")
    require_equal(moved["other GPUs"], updates * plan["other_gpu_bytes"], "to other GPUs")
    require_equal(staged, sum(moved.values()), "staged by engines (beside what was written)")
    return events


def the_memory_that_comes_and_goes_is_the_plan_s(sandbox, *settings):
    events = the_bytes_of_updates_are_the_plan_s(sandbox, *settings)
    plan = plan_of(sandbox, *SHORT, *settings)
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    for process, bytes_of in (("trainer", "trainer_bytes"), ("engines", "engine_bytes")):
        for row in range(4):
            resident, most = 0, 0
            turns = [event for event in events if event["ph"] == "X" and names[event["pid"]] == process
                     and event["tid"] == row and event["name"].startswith(("resume ", "pause "))]
            for event in sorted(turns, key=lambda event: event["ts"] + event["dur"]):
                resident += event["args"]["bytes"] * (1 if event["name"].startswith("resume ") else -1)
                require(resident >= 0, f"{process} {row}: more is paused than was resumed: {event}")
                require("device" in (event["args"]["from"], event["args"]["to"]), f"from where to where: {event}")
                most = max(most, resident)
            wanted = [moment[row][bytes_of] for moment in plan.values()]
            require_equal(most, max(wanted), f"{process} {row} at most")
            require_equal(resident, plan["ROLLOUT"][row][bytes_of], f"{process} {row} at the end")


def the_trace_balances_where_engines_are_written_to(sandbox):
    the_memory_that_comes_and_goes_is_the_plan_s(sandbox, "update.mode=donate")


def the_trace_balances_where_engines_copy(sandbox):
    the_memory_that_comes_and_goes_is_the_plan_s(sandbox, "update.mode=copy")


def the_trace_balances_where_buckets_overwrite(sandbox):
    the_memory_that_comes_and_goes_is_the_plan_s(sandbox, "update.mode=bucket")


def resumed_run_has_the_same_numbers(sandbox):
    words = ["rollout.num_rollout=8", "rollout.warmup_steps=3", "job.save_interval=3", "--json"]
    code, whole, err = sandbox.run("--out", "whole", *words)
    require(code == 0, f"exit code {code}: {err}")
    process = sandbox.start("--out", "parts", *words)
    wait_for(process, "step", 3)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    require(code == 130, f"interrupted: exit code {code}: {err}")
    state = json.loads((sandbox.path / "parts/checkpoint/state.json").read_text(encoding="utf-8"))
    require(3 <= state["step"] < 8, f"saved at step {state['step']}")
    code, rest, err = sandbox.run("--resume", "parts", *words)
    require(code == 0, f"resumed: exit code {code}: {err}")
    expected = [numbers_of(step) for step in steps_of(whole)][state["step"]:]
    require([numbers_of(step) for step in steps_of(rest)] == expected,
            f"other numbers after step {state['step']}:\n{rest}\n{whole}")
    for name in ("checkpoint/hf/model.safetensors", "checkpoint/rank-0.safetensors"):
        require(filecmp.cmp(sandbox.path / "whole" / name, sandbox.path / "parts" / name, shallow=False),
                f"{name} has other bytes")
    last = [json.loads(line)["note"].split(" on ")[0] for line in (whole.splitlines()[-1], rest.splitlines()[-1])]
    require(last[0] == last[1], f"before and after: {last}")


def checkpoint_is_found_where_a_kill_left_it(sandbox):
    process = sandbox.start("--out", "out", "--json", "job.save_interval=1", *ENDLESS)
    wait_for(process, "step", 4)
    process.kill()
    finish(process)
    sandbox.require_clean()
    state = json.loads((sandbox.path / "out/checkpoint/state.json").read_text(encoding="utf-8"))
    code, out, err = sandbox.run("--resume", "out", "--json", *ENDLESS[1:], f"rollout.num_rollout={state['step'] + 1}")
    require(code == 0, f"exit code {code}: {err}")
    require([step["step"] for step in steps_of(out)] == [state["step"] + 1], f"resumed after {state}: {out}")


def without_updates_engines_stay_as_they_were(sandbox):
    code, out, err = sandbox.run("--json", "--out", "out", "update.enabled=false", *SHORT)
    require(code == 0, f"exit code {code}: {err}")
    require(len({step["version"] for step in steps_of(out)}) == 1, f"a new version: {out}")
    before, after = json.loads(out.splitlines()[-1])["note"].split(" on ")[0].split()[1:4:2]
    require(before == after, f"{before} became {after}")


def interrupt(process):
    """Sends Ctrl-C to the whole process group, as a terminal does; returns when the driver has handled it."""
    os.killpg(process.pid, signal.SIGINT)
    while process.poll() is None:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        pending = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(("SigPnd", "ShdPnd"))]
        if not any(bits >> (signal.SIGINT - 1) & 1 for bits in pending):
            return


def ctrl_c_finishes_the_step_and_saves(sandbox):
    process = sandbox.start("--out", "out", "--json", *ENDLESS, start_new_session=True)
    wait_for(process, "step", 2)
    interrupt(process)
    code, out, err = finish(process)
    require(code == 130, f"exit code {code}: {err}")
    require("interrupted after step" in out and "--resume out" in out, f"told: {out}")
    require((sandbox.path / "out/checkpoint/state.json").is_file(), "nothing saved")
    json.loads((sandbox.path / "out/trace.json").read_text(encoding="utf-8"))
    sandbox.require_clean()


def ctrl_c_twice_leaves_in_the_middle_of_a_step(sandbox):
    process = sandbox.start("--out", "out", "--json", *LONG_STEP, start_new_session=True)
    wait_for_note(process, "before")
    interrupt(process)
    begin = time.monotonic()
    interrupt(process)
    code, out, err = finish(process)
    took_s = time.monotonic() - begin
    require(code == 130 and "interrupted twice" in err, f"exit code {code}: {err}")
    require(took_s < 2 * sandbox.slow and not steps_of(out), f"left after {took_s:.1f} s: {out}")
    sandbox.require_clean()


def ctrl_c_while_nothing_can_be_saved_says_so(sandbox):
    process = sandbox.start("--out", "out", "--json", "rollout.warmup_steps=1000000", start_new_session=True)
    wait_for(process, "warmup", 2)
    interrupt(process)
    code, _, err = finish(process)
    require(code == 130 and "interrupted during the warm-up: nothing to save yet" in err, f"exit code {code}: {err}")
    sandbox.require_clean()


def terminal_gets_a_live_bar(sandbox):
    master, slave = pty.openpty()
    process = sandbox.start("--out", "out", *SHORT, stdout=slave, environment=sandbox.environment(TERM="xterm"))
    os.close(slave)
    shown = b""
    try:
        while chunk := os.read(master, 65536):
            shown += chunk
    except OSError:
        pass  # Linux reports an error when no process has the terminal open for writing.
    os.close(master)
    code, _, err = finish(process)
    text = shown.decode()
    require(code == 0, f"exit code {code}: {err}")
    require("\r\x1b[K" in text and "━" in text and "100%" in text, f"no bar: {text!r}")
    for drawn in text.replace("\r\n", "\x1b[K").split("\x1b[K"):
        require(len(drawn) < 81 or not drawn.startswith("step"), f"wider than the terminal: {drawn!r}")


if __name__ == "__main__":
    sys.exit(main([pipe_gets_one_plain_line_a_step, engines_agree_with_the_trainer_at_every_step,
                   right_engines_are_within_a_tolerance,
                   they_agree_also_by_way_of_the_disk, model_is_written_and_read_in_several_files,
                   the_trace_has_every_phase_on_every_row,
                   the_trace_balances_where_engines_are_written_to, the_trace_balances_where_engines_copy,
                   the_trace_balances_where_buckets_overwrite,
                   resumed_run_has_the_same_numbers,
                   checkpoint_is_found_where_a_kill_left_it, without_updates_engines_stay_as_they_were,
                   ctrl_c_finishes_the_step_and_saves, ctrl_c_twice_leaves_in_the_middle_of_a_step,
                   ctrl_c_while_nothing_can_be_saved_says_so,
                   terminal_gets_a_live_bar]))
