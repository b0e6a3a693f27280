#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cuda_test.py - the job with `device: cuda`, on fake libraries for the driver and for cuBLAS."""
import json
import sys

from support import finish, main, notes_of, on_cuda, require, steps_of

# Ten supervised steps are enough for both to answer some prompts.
LEARNING = ["rollout.num_rollout=2", "rollout.warmup_steps=20", "trainer.warmup_lr=6e-3"]
SHORT = ["rollout.num_rollout=2", "rollout.warmup_steps=1", "rollout.rollout_batch_size=16"]
# The smallest job on one GPU, where trainer and engine have memory of another process that only one of them can have.
FREE_MS = 600  # Milliseconds until the GPU returns the memory of a killed process.
TINY = """
job: {name: tiny, seed: 5, save_interval: 0}
cluster: {num_gpus: 1, gpu_bytes: 56 MiB, cpus: 4, device: cuda}
trainer: {num_ranks: 1, outside_mib: 32, outside_used_mib: 32, outside_in_process: 1}
engine: {num_engines: 1, rollout_num_gpus_per_engine: 1, outside_mib: 32, outside_used_mib: 32, outside_in_process: 1}
rollout: {num_rollout: 3, rollout_batch_size: 2, n_samples_per_prompt: 2, rollout_max_response_len: 4, warmup_steps: 1,
          warmup_batch_size: 2}
update: {update_weight_buffer_size: 4 KiB}
"""
DIFFERENCE_MAX = 5e-5  # Largest difference of a token's log-probability between trainer and engines.


def run_on_cuda(sandbox, *words, **more):
    return sandbox.run("cluster.device=cuda", *words, environment=sandbox.environment(**on_cuda(sandbox, **more)))


def numbers(out, kind, name):
    return [item["metrics"][name] for item in map(json.loads, out.splitlines()) if item.get("kind") == kind]


def scores(out):
    """Returns the scores before and after reinforcement learning."""
    words = json.loads(out.splitlines()[-1])["note"].split()
    return float(words[1]), float(words[3])


def near(found, wanted, tolerance):
    return len(found) == len(wanted) and all(abs(a - b) <= tolerance for a, b in zip(found, wanted))


def gpu_learns_the_same_as_the_host(sandbox):
    """Compares with a tolerance: sums have another order, which learning amplifies to 1e-5 after twenty steps."""
    code, host, err = sandbox.run("--json", "--out", "host", *LEARNING)
    require(code == 0, f"on the host: exit code {code}: {err}")
    code, cuda, err = run_on_cuda(sandbox, "--json", "--out", "cuda", *LEARNING)
    require(code == 0, f"on CUDA: exit code {code}: {err}")
    losses = numbers(host, "warmup", "loss"), numbers(cuda, "warmup", "loss")
    require(len(losses[0]) == 20 and near(*losses, 1e-4), f"losses: {losses}")
    (before, after), found = scores(host), scores(cuda)
    require(before > 0.05, f"nothing learnt: {before}")
    require(near(found, (before, after), 0.01), f"scores: {before}, {after} on the host, {found} on CUDA")
    for name in ("hf/model.safetensors", "checkpoint/rank-0.safetensors"):
        sizes = [(sandbox.path / out / name).stat().st_size for out in ("host", "cuda")]
        require(sizes[0] == sizes[1], f"{name}: {sizes} bytes")
    sandbox.require_clean()


def engines_on_a_gpu_agree_with_the_trainer(sandbox):
    """Runs the job also with a fake driver that executes work only when it is waited for."""
    for mode in ("donate", "copy", "names"):
        code, out, err = run_on_cuda(sandbox, "--json", "--out", mode, f"update.mode={mode}", *SHORT,
                                     FAKE_CUDA_DEFER="1")
        require(code == 0, f"{mode}: exit code {code}: {err}")
        steps = steps_of(out)
        require(len(steps) == 2, f"{mode}: {len(steps)} steps")
        for step in steps:
            require(0 < step["metrics"]["logprob_diff_max"] <= DIFFERENCE_MAX, f"{mode}: {step['metrics']}")


def engines_on_other_gpus_get_the_same_weights(sandbox):
    for mode in ("donate", "copy"):
        code, out, err = run_on_cuda(sandbox, "--json", "--out", mode, f"update.mode={mode}", *SHORT,
                                     "engine.colocate=false", "cluster.num_gpus=8", FAKE_CUDA_DEVICES="8",
                                     FAKE_CUDA_DEFER="1")
        require(code == 0, f"{mode}: exit code {code}: {err}")
        steps = steps_of(out)
        require(len(steps) == 2, f"{mode}: {len(steps)} steps")
        for step in steps:
            require(0 < step["metrics"]["logprob_diff_max"] <= DIFFERENCE_MAX, f"{mode}: {step['metrics']}")
    sandbox.require_clean()


def engines_on_the_same_gpus_but_not_colocated_get_the_same_weights(sandbox):
    """Each GPU is shared by a trainer and an engine, as two virtual GPUs, so that NCCL cannot move the weights."""
    code, out, err = run_on_cuda(sandbox, "--json", "--out", "shared", "update.mode=donate", *SHORT,
                                 "engine.colocate=false", "cluster.num_gpus=8", FAKE_CUDA_DEVICES="4",
                                 FAKE_CUDA_BYTES=str(128 << 20), FAKE_CUDA_DEFER="1")
    require(code == 0, f"exit code {code}: {err}")
    steps = steps_of(out)
    require(len(steps) == 2, f"{len(steps)} steps")
    for step in steps:
        require(0 < step["metrics"]["logprob_diff_max"] <= DIFFERENCE_MAX, f"{step['metrics']}")
    sandbox.require_clean()


def gather_kinds(sandbox, out):
    """Returns what has moved the data of gather groups in the updates of a job, by the spans of its trainer ranks."""
    events = json.loads((sandbox.path / out / "trace.json").read_text(encoding="utf-8"))
    names = [event["name"] for event in events if event["name"].startswith("collectives ")]
    require(names, "no span has the collective operations of an update")
    return {name.split()[2] for name in names}


def gather_groups_are_nccls_where_their_gpus_allow(sandbox):
    """Two of the engine's ranks on two GPUs gather by NCCL, on one GPU through host memory."""
    for out, devices, kind in (("apart", "4", "nccl"), ("shared", "1", "staged")):
        code, _, err = run_on_cuda(sandbox, "--json", "--out", out, *SHORT, FAKE_CUDA_DEVICES=devices,
                                   FAKE_CUDA_BYTES=str((256 if devices == "1" else 64) << 20))
        require(code == 0, f"{out}: exit code {code}: {err}")
        found = gather_kinds(sandbox, out)
        require(found == {kind}, f"{out}: gather groups are {found}, not {kind}")
    sandbox.require_clean()


def engine_whose_kernel_breaks_its_process_comes_back(sandbox):
    code, out, err = run_on_cuda(sandbox, "--json", "--out", "broken", "rollout.num_rollout=6", "rollout.warmup_steps=1",
                                 "rollout.rollout_batch_size=16", "rollout.num_engines_min=1",
                                 FAKE_CUDA_FAIL="cuLaunchKernel:1000:700", FAKE_CUDA_FAIL_IN="engine/1/0")
    require(code == 0, f"exit code {code}: {err}")
    require((sandbox.path / "gpus" / "failing").exists(), "no process was to fail")
    notes = notes_of(out)
    require(any("engine/1/0 died" in note for note in notes), f"no engine lost: {notes}")
    require(any(note.startswith("engine 1 back") for note in notes), f"engine 1 is not back: {notes}")
    require(len(steps_of(out)) == 6, f"{len(steps_of(out))} steps")
    sandbox.require_clean()


def spans_of(path, name):
    """Returns the durations of the spans with this name, in milliseconds."""
    events = json.loads(path.read_text(encoding="utf-8"))
    return [event["dur"] / 1000 for event in events if event["ph"] == "X" and event["name"] == name]


def memory_that_a_gpu_returns_late_is_awaited(sandbox):
    """In each step trainer and engine kill their processes. The other one must wait until the GPU has the memory."""
    (sandbox.path / "tiny.yaml").write_text(TINY, encoding="utf-8")
    (sandbox.path / "tiny").write_text('{"prompt": "p", "answer": "0"}\n' * 2, encoding="utf-8")
    library = sandbox.build / "tests" / "tiny_job_library.so"
    data = [f"data.{name}={sandbox.path / 'tiny'}" for name in ("train", "unseen")]
    environment = sandbox.environment(**on_cuda(sandbox, FAKE_CUDA_DEVICES="1", FAKE_CUDA_TOUCH="1",
                                                FAKE_CUDA_FREE_MS=str(FREE_MS), FAKE_CUDA_CONTEXT_MS="300"))
    words = ["tiny.yaml", "--json", "--out", "late", f"job.library={library}", *data]
    code, out, err = finish(sandbox.tandem("run", *words, environment=environment))
    require(code == 0, f"exit code {code}: {err}")
    require(len(steps_of(out)) == 3, f"{len(steps_of(out))} steps")
    pauses = spans_of(sandbox.path / "late/trace.json", "pause torch")
    require(len(pauses) >= 6 and min(pauses) >= FREE_MS - 1, f"pauses in ms: {pauses}")
    sandbox.require_clean()


def missing_cublas_library_is_named(sandbox):
    code, _, err = run_on_cuda(sandbox, "--out", "out", *SHORT, COLOCATED_RL_CUBLAS_LIBRARY="/nowhere/libcublas.so")
    require(code == 1 and "/nowhere/libcublas.so" in err, f"exit code {code}: {err}")
    sandbox.require_clean()


def failing_matrix_product_is_named(sandbox):
    code, _, err = run_on_cuda(sandbox, "--out", "out", *SHORT, FAKE_CUBLAS_FAIL="20")
    require(code == 1 and "cublasSgemm" in err, f"exit code {code}: {err}")
    sandbox.require_clean()


if __name__ == "__main__":
    sys.exit(main([gpu_learns_the_same_as_the_host, engines_on_a_gpu_agree_with_the_trainer,
                   engines_on_other_gpus_get_the_same_weights,
                   engines_on_the_same_gpus_but_not_colocated_get_the_same_weights,
                   gather_groups_are_nccls_where_their_gpus_allow,
                   engine_whose_kernel_breaks_its_process_comes_back, memory_that_a_gpu_returns_late_is_awaited,
                   missing_cublas_library_is_named, failing_matrix_product_is_named]))
