#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""input_test.py - wrong input is refused with exit code 1 or 2 and a message that names it; no process is left."""
import json
import re
import shutil
import signal
import struct
import subprocess
import sys

from support import JOB, ROOT, SHORT, Failure, finish, main, require, safetensors, wait_for

# These errors name the line of a setting other than the wrong one.
ELSEWHERE = ("model.num_attention_heads is 7, not a multiple of num_key_value_heads 4",
             "cluster.num_gpus is 3, but 4 trainer ranks and 4 engine ranks share 4 GPUs",
             "are 1.1 of a GPU; lower one of them",
             "cluster.num_gpus is 4, but 4 trainer ranks and 6 engine ranks share 6 GPUs")
# Text to replace in the job file, its replacement, and the error after "job.yaml:LINE: ".
BROKEN = [
    ("num_gpus: 4", "num_gpus: many", "cluster.num_gpus"),
    ("num_gpus: 4", "num_gpus: 0", "cluster.num_gpus is 0, expected 1 to 256"),
    ("num_gpus: 4", "num_gpu: 4", "unknown setting cluster.num_gpu; did you mean cluster.num_gpus?"),
    ("num_gpus: 4", "num_gpus: 3", ELSEWHERE[1]),
    ("cluster:", "clutser:", 'unknown section "clutser"; did you mean cluster?'),
    ("gpu_bytes: ", "gpu_bytes: 256 apples #", "cluster.gpu_bytes must be a size"),
    ("device: host", "device: abacus", 'cluster.device is "abacus", expected host or cuda'),
    ("num_engines: 2", "num_engines: 3", "engine.num_engines is 3"),
    ("rollout_num_gpus_per_engine: 2", "rollout_num_gpus_per_engine: 3", ELSEWHERE[3]),
    ("num_gpus_per_actor: 0.4", "num_gpus_per_actor: 0.9", ELSEWHERE[2]),
    ("rollout_batch_size: 64", "rollout_batch_size: 63", "63 prompts do not divide over 4 trainer ranks"),
    ("rollout_batch_size: 64", "rollout_batch_size: -1", "rollout.rollout_batch_size is -1"),
    ("temperature: 1.0", "temperature: [1, 2]", "rollout.temperature"),
    ("verify: full", "verify: perhaps", 'update.verify is "perhaps", expected full, sample or none'),
    ("name: colocated-rl", "name: a b", 'job.name "a b" must have only letters'),
    ("  seed: 0", "  seed: 0\n  seed: 1", "seed"),
    ("  seed: 0", "\tseed: 0", ""),
    ("  lr: 2e-3", "  lr: fast", "trainer.lr"),
    ("num_attention_heads: 8", "num_attention_heads: 7", ELSEWHERE[0]),
]
# Arguments after "run", exit code, pattern that stderr must match.
WORDS = [
    (["run"], 2, "run requires more arguments\nusage: tandem run FILE"),
    (["run", JOB, "--jsn"], 2, "--json"),
    (["rnu", JOB], 2, 'unknown command "rnu"\nsee: tandem --help'),
    (["run", JOB, "trainer.lr"], 1, "trainer.lr"),
    (["run", JOB, "cluster.num_gpsu=4"], 1, "cluster.num_gpus"),
    (["run", "no/such.yaml"], 1, "no/such.yaml: no such file"),
    (["run", "/"], 1, "/: not a regular file"),
    (["run", JOB, "--out"], 2, "--out"),
    (["plan", "no/such.yaml"], 1, "no/such.yaml"),
]
HIDDEN = 64


def refused(sandbox, words, code, wanted, **options):
    found, out, err = finish(sandbox.tandem(*words, **options))
    require(found == code, f"{words[:4]}: exit code {found} instead of {code}: {err!r}")
    require(re.search(wanted, err), f"{words[:4]}: does not match {wanted!r}: {err!r}")
    require(err.startswith("tandem: ") and err.count("tandem: ") == 1, f"{words[:4]}: not one clear error: {err!r}")
    sandbox.require_clean()
    return out


def run_words(sandbox, *words):
    return ["run", JOB, f"job.library={sandbox.library()}", "--out", "out", *SHORT, *words]


def together(cases):
    """Runs all cases and reports all failures together."""
    wrong = []
    for case in cases:
        try:
            case()
        except Failure as failure:
            wrong.append(str(failure))
    require(not wrong, f"{len(wrong)} cases:\n" + "\n".join(wrong))


def broken_job_file_is_refused_with_line_and_field(sandbox):
    text = JOB.read_text(encoding="utf-8").replace("../../build/release", str(sandbox.build))
    text = text.replace(" data/", f" {JOB.parent}/data/")
    path = sandbox.path / "job.yaml"

    def case(old, new, wanted):
        require(old in text, f"the job file has no {old!r}")
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        line = text[:text.index(old)].count("\n") + 1
        lines = f"{line}|{line + 1}" if "\n" in new else r"\d+" if wanted in ELSEWHERE else line
        refused(sandbox, ["run", path, "--out", "out"], 1, rf"job\.yaml:({lines}):.*" + re.escape(wanted))

    together([lambda broken=broken: case(*broken) for broken in BROKEN])
    require(not (sandbox.path / "out").exists(), "a refused job made its folder")


def invalid_job_file_is_refused(sandbox):
    cases = {"empty": b"", "binary": bytes(range(256)), "list": b"- 1\n- 2\n", "cut": b"job: {name: x",
             "deep": b"a: " + b"[" * 5000, "large": b"#" * (2 << 20), "aliases": b"a: &a [*a, *a]\n"}

    def case(name, data):
        path = sandbox.path / f"{name}.yaml"
        path.write_bytes(data)
        refused(sandbox, ["run", path], 1, re.escape(f"{name}.yaml"))

    together([lambda item=item: case(*item) for item in cases.items()])


def wrong_arguments_are_refused(sandbox):
    together([lambda words=words: refused(sandbox, *words) for words in WORDS])


def job_that_cannot_fit_is_refused_with_phase_and_bytes(sandbox):
    wanted = r"TRAIN on GPU 0: 16\.0 MiB wanted \(trainer 16\.0, engine 0\.0\), 8\.0 MiB there; .*cluster\.gpu_bytes"
    refused(sandbox, run_words(sandbox, "cluster.gpu_bytes=8 MiB"), 1, wanted)
    words = run_words(sandbox, "cluster.gpu_bytes=8 MiB")
    words[0] = "plan"
    out = refused(sandbox, [word for word in words if word not in ("--out", "out")], 1, wanted)
    require("GPU 3" in out and "fits" not in out, f"the plan: {out}")


def missing_files_are_named(sandbox):
    broken = sandbox.path / "broken.jsonl"
    broken.write_text('{"prompt": "1", "answer": "1"}\n{"prompt": 7}\n', encoding="utf-8")
    empty = sandbox.path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    text = sandbox.path / "text.so"
    text.write_text("no library\n", encoding="utf-8")
    (sandbox.path / "file").write_text("in the way", encoding="utf-8")
    together([lambda words=words, wanted=wanted: refused(sandbox, run_words(sandbox, *words), 1, wanted) for words, wanted in (
        (["data.train=/no/such.jsonl"], r"/no/such\.jsonl: no such file"),
        (["data.unseen=/no/such.jsonl"], r"/no/such\.jsonl: no such file"),
        ([f"data.train={broken}"], r"broken\.jsonl:2"),
        ([f"data.train={empty}"], r"empty\.jsonl"),
        (["data.prompt_key=question"], r"number_sorting\.train\.jsonl:1.*question"),
        (["job.library=/no/such.so"], r"/no/such\.so"),
        ([f"job.library={text}"], r"text\.so"),
        ([f"job.library={sandbox.build}/libtandem.so"], r"libtandem\.so: no TDM_JOB_LIBRARY"),
        (["--resume", "nowhere"], r"there is no checkpoint in nowhere"),
        (["--resume", "nowhere", "--overwrite"], r"--resume and --overwrite"),
        (["--out", "file"], r"file"),
        (["--out", "file/below"], r"file"),
    )])


def hostile_checkpoint_is_refused_by_name(sandbox):
    code, _, err = finish(sandbox.tandem(*run_words(sandbox, "rollout.num_rollout=1")))
    require(code == 0, f"exit code {code}: {err}")
    hf = sandbox.path / "hf"
    shutil.copytree(sandbox.path / "out/hf", hf)
    good = (hf / "model.safetensors").read_bytes()
    end = 8 + struct.unpack("<Q", good[:8])[0]
    name = "model.embed_tokens.weight"
    cases = {
        "empty": b"", "short": good[:7], "cut header": good[:end - 10], "cut data": good[:-1],
        "long": good + b"x", "huge header": struct.pack("<Q", 1 << 62) + good[8:],
        "no json": good[:8] + b"#" * (end - 8) + good[end:],
        "no tensors": safetensors({}),
        "wrong shape": safetensors({name: ("F32", [HIDDEN, 1], bytes(4 * HIDDEN))}),
        "wrong type": safetensors({name: ("I8", [HIDDEN], bytes(HIDDEN))}),
        "outside": good[:8] + good[8:end].replace(b'"data_offsets":[0,', b'"data_offsets":[9,', 1) + good[end:],
    }

    def case(kind, data):
        (hf / "model.safetensors").write_bytes(data)
        try:
            refused(sandbox, run_words(sandbox, f"model.path={hf}"), 1, r"model\.safetensors|" + re.escape(name))
        except Failure as failure:
            raise Failure(f"{kind}: {failure}") from failure

    together([lambda item=item: case(*item) for item in cases.items()])
    (hf / "model.safetensors").write_bytes(good)
    code, _, err = finish(sandbox.tandem(*run_words(sandbox, f"model.path={hf}")))
    require(code == 0, f"the good one: exit code {code}: {err}")


def output_of_another_job_is_kept(sandbox):
    words = run_words(sandbox, "rollout.num_rollout=1")
    code, _, err = finish(sandbox.tandem(*words))
    require(code == 0, f"exit code {code}: {err}")
    refused(sandbox, words, 1, r"out is not empty \(it has .*\): continue .* --resume out", overwrite=False)
    process = sandbox.start("--json", "--out", "out", "rollout.num_rollout=1000000", "rollout.warmup_steps=2")
    wait_for(process, "step", 1)
    found, _, err = finish(sandbox.tandem(*words))
    require(found == 1 and "another job writes to out" in err, f"exit code {found}: {err!r}")
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    require(code == 143, f"after SIGTERM: exit code {code}: {err}")
    saved = json.loads((sandbox.path / "out/checkpoint/state.json").read_text(encoding="utf-8"))
    require(saved["step"] >= 1, f"after SIGTERM: {saved}")
    code, _, err = finish(sandbox.tandem(*words, "--resume", "out", f"rollout.num_rollout={saved['step'] + 1}"))
    require(code == 0, f"what SIGTERM has saved: exit code {code}: {err}")


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1:]


def with_nan(data):
    """Returns a file of tensors whose last number is not a number."""
    return data[:-4] + struct.pack("<f", float("nan"))


def files_of(checkpoint):
    return {path.name: path.read_bytes() for path in checkpoint.iterdir() if path.is_file()}


def damages(good, other):
    """Returns the damaged forms of each file of a checkpoint: (what was done, file, new bytes or None to remove it).
    `other` has the files of another job with the same settings but its seed."""
    for name, data in good.items():
        yield "emptied", name, b""
        yield "removed", name, None
        yield "cut", name, data[:-1]
        yield "cut in the middle", name, data[:len(data) // 2]
        yield "made longer", name, data + b"\0"
        yield "first bit", name, flipped(data, 0)
        yield "a bit in the middle", name, flipped(data, len(data) // 2)
        yield "last bit", name, flipped(data, len(data) - 1)
        yield "of another job", name, other[name]
    state, rank, manifest = "state.json", "rank-2.safetensors", "manifest"
    yield "no JSON", state, b"{"
    yield "a negative step", state, b'{"step": -4, "version": 1}'
    yield "of rank 1", rank, good["rank-1.safetensors"]
    yield "not a number", rank, with_nan(good[rank])
    yield "zeros", rank, bytes(len(good[rank]))
    yield "no line", manifest, b"\n"
    yield "binary", manifest, bytes(range(256))
    yield "no last line", manifest, b"".join(good[manifest].splitlines(keepends=True)[:-1])
    yield "a line twice", manifest, good[manifest] + good[manifest].splitlines(keepends=True)[-1]


def damaged_checkpoint_is_not_resumed(sandbox):
    """Of 26 kinds of damage, 10 were accepted before checkpoints had manifests."""
    checkpoint = sandbox.path / "out/checkpoint"
    code, _, err = finish(sandbox.tandem(*run_words(sandbox, "job.seed=1")))
    require(code == 0, f"exit code {code}: {err}")
    other = files_of(checkpoint)
    code, _, err = finish(sandbox.tandem(*run_words(sandbox)))
    require(code == 0, f"exit code {code}: {err}")
    good = files_of(checkpoint)
    words = run_words(sandbox, "--resume", "out", "rollout.num_rollout=6")

    def case(what, name, data):
        path = checkpoint / name
        require(data != good[name], f"{name}, {what}: is as before")
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        # If the manifest is damaged, the error may name a file that differs from what the manifest lists.
        try:
            refused(sandbox, words, 1, re.escape(name) if name != "manifest" else r"out/checkpoint\b")
        except Failure as failure:
            raise Failure(f"{name}, {what}: {failure}") from failure
        finally:
            path.write_bytes(good[name])

    cases = list(damages(good, other))
    require(len(cases) >= 26 and len(good) >= 6, f"{len(cases)} cases for {sorted(good)}")
    together([lambda words=words: case(*words) for words in cases])
    shutil.copytree(checkpoint, sandbox.path / "good")
    together([lambda kind=kind: choice_is_told(sandbox, words, kind) for kind in (".old", ".new")])


def choice_is_told(sandbox, words, kind):
    """The checkpoint is damaged, and one beside it, with this ending, is not."""
    out = sandbox.path / "out"
    shutil.rmtree(out)
    shutil.copytree(sandbox.path / "good", out / "checkpoint")
    shutil.copytree(sandbox.path / "good", out / f"checkpoint{kind}")
    rank = out / "checkpoint/rank-2.safetensors"
    rank.write_bytes(flipped(rank.read_bytes(), 1000))
    code, told, err = finish(sandbox.tandem(*words))
    require(code == 0, f"{kind}: exit code {code}: {err}{told}")
    why = f"resuming out/checkpoint{kind}, because out/checkpoint/{rank.name} is damaged: "
    require(why in told + err, f"{why!r} is missing in: {told}{err}")


def unknown_test_is_an_error(sandbox):
    for program, wanted in (("input_test.py", "no test is named nothing"), ("crash_test.py", "no row's name contains")):
        words = [sys.executable, str(ROOT / "tests/job" / program), str(sandbox.build), "1", "nothing"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        require(done.returncode == 1 and wanted in done.stderr, f"{program}: {done.returncode}: {done.stderr!r}")


if __name__ == "__main__":
    require(ROOT.is_dir(), "no sources")
    sys.exit(main([broken_job_file_is_refused_with_line_and_field, invalid_job_file_is_refused,
                   wrong_arguments_are_refused, job_that_cannot_fit_is_refused_with_phase_and_bytes,
                   missing_files_are_named, hostile_checkpoint_is_refused_by_name,
                   output_of_another_job_is_kept, damaged_checkpoint_is_not_resumed,
                   unknown_test_is_an_error]))
