#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memory_test.py - how much memory an update needs beside the weights, by update mode."""
import json
import pathlib
import sys
import time

from support import finish, main, notes_of, require, steps_of

MIB = 1 << 20
WEIGHTS = 160 * MIB  # One rank's weights; twice that does not fit on the GPU.
BUCKET = 4 * MIB
SLACK = 64 * MIB
JOB = f"""
job: {{name: large, seed: 5, save_interval: 0}}
cluster: {{num_gpus: 1, gpu_bytes: {WEIGHTS + BUCKET + SLACK}, cpus: 4}}
trainer: {{num_ranks: 1}}
engine: {{num_engines: 1, rollout_num_gpus_per_engine: 1}}
rollout: {{num_rollout: 2, rollout_batch_size: 2, n_samples_per_prompt: 1, warmup_steps: 1, warmup_batch_size: 2}}
update: {{update_weight_buffer_size: {BUCKET}}}
model: {{mib: {WEIGHTS // MIB}}}
"""


def words_of(sandbox, *settings):
    (sandbox.path / "job.yaml").write_text(JOB, encoding="utf-8")
    (sandbox.path / "data").write_text('{"prompt": "p", "answer": "0"}\n' * 2, encoding="utf-8")
    library = sandbox.build / "tests" / "large_job_library.so"
    data = [f"data.{name}={sandbox.path / 'data'}" for name in ("train", "unseen")]
    return ["job.yaml", f"job.library={library}", *data, *settings]


def peak_of(pid):
    """Returns the largest resident memory that a process has had, in bytes; 0 if it has ended."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0
    peaks = [int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
    return peaks[0] if peaks else 0


def watch_engine(sandbox, process):
    """Returns the largest resident memory of the engine rank until the job has ended."""
    peak, engine = 0, None
    while process.poll() is None:
        if engine is None:
            engine = next((pid for pid, name in sandbox.processes().items() if name == "engine/0/0"), None)
        else:
            peak = max(peak, peak_of(engine))
        time.sleep(0.002)
    return peak


def most_at_once(path):
    """Returns the most bytes that all ranks have had on the GPU at one time, from the trace."""
    events = [event for event in json.loads(path.read_text(encoding="utf-8"))
              if event["ph"] == "X" and event["name"].startswith(("resume ", "pause "))]
    resident, most = 0, 0
    for event in sorted(events, key=lambda event: event["ts"] + event["dur"]):
        resident += event["args"]["bytes"] * (1 if event["name"].startswith("resume ") else -1)
        most = max(most, resident)
    return most


def update_needs_the_weights_and_one_bucket(sandbox, *settings):
    words = words_of(sandbox, "update.mode=bucket", *settings)
    code, plan, err = finish(sandbox.tandem("plan", *words))
    require(code == 0, f"exit code {code}: {err}")
    process = sandbox.tandem("run", *words, "--json", "--out", "out")
    peak = watch_engine(sandbox, process)
    code, out, err = finish(process)
    require(code == 0, f"exit code {code}: {err}")
    require(len(steps_of(out)) == 2 and not any("aborted" in note for note in notes_of(out)), f"told: {out}")
    most = most_at_once(sandbox.path / "out/trace.json")
    print(f"        on the GPU at most {most / MIB:.1f} MiB, engine process at most {peak / MIB:.1f} MiB, for weights of "
          f"{WEIGHTS / MIB:.0f} MiB and a bucket of {BUCKET / MIB:.0f} MiB")
    require(WEIGHTS <= most <= WEIGHTS + BUCKET + SLACK, f"{most} bytes on the GPU at one time")
    require(WEIGHTS <= peak <= WEIGHTS + BUCKET + SLACK, f"the engine had {peak} bytes of memory")


def other_modes_need_a_second_copy(sandbox):
    for mode in ("donate", "copy", "names"):
        code, _, err = finish(sandbox.tandem("plan", *words_of(sandbox, f"update.mode={mode}")))
        wanted = (2 * WEIGHTS + BUCKET) / MIB
        require(code != 0 and f"UPDATE on GPU 0: {wanted:.1f} MiB wanted" in err and "set update.mode to bucket" in err,
                f"{mode}: exit code {code}: {err}")


if __name__ == "__main__":
    sys.exit(main([update_needs_the_weights_and_one_bucket, other_modes_need_a_second_copy]))
