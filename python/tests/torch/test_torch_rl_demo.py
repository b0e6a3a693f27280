# SPDX-License-Identifier: Apache-2.0
"""The table of scripts/demo-torch, and its division of the training data; the job itself is not run."""
import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/torch_rl"))
import demo  # noqa: E402


def run_of(name, before, reward, difference=1e-6, minutes=0.0):
    """Return a Run that has read these numbers as `tandem run --json` prints them."""
    run = demo.Run(name, 1, minutes=minutes)
    run.read({"note": f"before     {before:.3f} on 1086 unseen prompts"})
    for step, found in ((1, difference), (2, 1e-7)):
        run.read({"kind": "step", "step": step, "metrics": {"logprob_diff_max": found}})
    run.read({"note": f"reward {before:.3f} → {reward:.3f} on 1086 unseen prompts      checkpoint out/hf"})
    return run


@pytest.mark.parametrize("run, least, wanted", [
    (run_of("full", 0.1, 0.9), 0.9, []),
    (run_of("full", 0.101, 0.95), 0.9, ["began at 0.101, above 0.1"]),
    (run_of("full", 0.02, 0.899), 0.9, ["ended at 0.899, under 0.9"]),
    (run_of("short", 0.02, 0.61), 0.6, []),
    (run_of("full", 0.02, 0.95, 1e-4), 0.9, ["log-probabilities differ by 1.0e-04, not under 0.0001"]),
    (run_of("full", 0.02, 0.95, None), 0.9, ["log-probabilities differ by inf, not under 0.0001"]),
    (run_of("updates off", 0.02, 0.02, 3.0), 0.9, []),
    (run_of("shuffled rewards", 0.02, 0.2), 0.9, ["ended at 0.200, not under 0.2"]),
    (run_of("full", 0.02, 0.95, minutes=20.0), 0.9, []),
    (run_of("full", 0.02, 0.95, minutes=20.1), 0.9, ["took 20.1 minutes, above 20"]),
    (run_of("updates off", 0.02, 0.02, minutes=21.0), 0.9, ["took 21.0 minutes, above 20"]),
    (demo.Run("full", 1), 0.9, ["began at nan, above 0.1", "ended at nan, under 0.9"])])
def test_bounds(run, least, wanted):
    assert run.failures(least, demo.MINUTES_MAX) == wanted


def test_a_short_run_has_half_the_time():
    run = run_of("short", 0.02, 0.65, minutes=12.0)
    assert run.failures(demo.SHORT_MIN, demo.SHORT_MINUTES_MAX) == ["took 12.0 minutes, above 10"]


def test_table_has_a_row_for_each_run():
    lines = demo.table([run_of("full", 0.02, 0.95), run_of("updates off", 0.02, 0.5)], 0.9,
                       demo.MINUTES_MAX)
    assert lines[2] == "| full | 1 | 2 | 0.020 | 0.950 | 0.0 | 0.0 | 1.0e-06 | as wanted |"
    assert lines[3].endswith("| ended at 0.500, not under 0.2 |") and len(lines) == 4


def test_engines_of_both_kinds_may_start_on_a_busy_machine():
    assert all("job.start_timeout_ms=900000" in settings for settings in demo.ENGINES.values())


def test_prompts_that_are_held_out_have_digits_that_training_lacks(tmp_path):
    def digits_of(path):
        lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
        return len(lines), {"".join(sorted(json.loads(line)["answer"])) for line in lines}

    settings = dict(setting.split("=", 1) for setting in demo.hold_out(tmp_path))
    train, train_digits = digits_of(settings["data.train"])
    held, held_digits = digits_of(settings["data.unseen"])
    all_lines, all_digits = digits_of(demo.DATA / "number_sorting.train.jsonl")
    assert train + held == all_lines and train_digits | held_digits == all_digits
    assert not train_digits & held_digits and 600 <= held < 650


# Stands for the program `tandem`: prints what a job prints, fails for the seed 9, and lasts 2 s for the seed 8.
TANDEM = """#!/usr/bin/env python3
import json
import sys
import time

settings = dict(word.split("=", 1) for word in sys.argv if "=" in word)
if settings["job.seed"] == "9":
    sys.exit("no such seed")
time.sleep(2 if settings["job.seed"] == "8" else 0)
print(json.dumps({"note": "library " + settings.get("job.library", "of the job file")}))
reward = 0.95 if settings.get("data.shuffle_rewards") is None else 0.03
print(json.dumps({"note": "before     0.020 on 1086 unseen prompts"}))
for step in range(1, 21):
    print(json.dumps({"kind": "step", "step": step, "steps": 20, "reward": None,
                      "metrics": {"logprob_diff_max": 1e-6}}))
print(json.dumps({"note": f"reward 0.020 → {reward:.3f} on 1086 unseen prompts      checkpoint out/hf"}))
"""


def demo_output(folder, *words):
    """Run the demonstration with the program above; return its exit status, stdout and stderr."""
    program = folder / "tandem"
    program.write_text(TANDEM, encoding="utf-8")
    program.chmod(0o755)
    done = subprocess.run([sys.executable, demo.__file__, "--tandem", program, "--out", folder / "out", *words],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_seeds_and_controls_are_run_one_after_the_other(tmp_path):
    status, out, _ = demo_output(tmp_path, "--short", "--seeds", "1", "2", "--controls", "--", "trainer.lr=1e-3")
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in out.splitlines() if line.startswith("| ")]
    assert rows == [["run", "seed", "steps"], ["short", "1", "20"], ["short", "2", "20"], ["updates off", "1", "20"],
                    ["shuffled rewards", "1", "20"]]
    # Here the control without updates learns.
    assert status == 1 and "ended at 0.950, not under 0.2" in out and "step 20/20" in out


def test_a_run_that_fails_ends_the_demonstration_with_its_errors(tmp_path):
    status, out, errors = demo_output(tmp_path, "--seeds", "1", "9")
    assert status == 1 and "no such seed" in errors and "the run full, seed 9, failed with status 1" in errors
    assert "| full" not in out


def test_the_time_of_a_run_counts_from_the_start_of_the_job(tmp_path, monkeypatch, capsys):
    """A run of two seconds that may take one is not as wanted, although its reward is."""
    program = tmp_path / "tandem"
    program.write_text(TANDEM, encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setattr(demo, "MINUTES_MAX", 1 / 60)
    monkeypatch.setattr(sys, "argv", ["demo.py", "--tandem", str(program), "--out", str(tmp_path / "out"), "--seeds", "8"])
    with pytest.raises(SystemExit) as caught:
        demo.main()
    assert caught.value.code == 1 and "| took 0.0 minutes, above 0.01" in capsys.readouterr().out


@pytest.mark.parametrize("words, library", [((), "python:torch_rl_vllm"), (("--engine", "vllm"), "python:torch_rl_vllm"),
                                            (("--engine=transformers",), "of the job file")])
def test_the_engines_are_those_that_were_asked_for(words, library, tmp_path):
    status, out, errors = demo_output(tmp_path, *words)
    assert status == 0 and f"library {library}\n" in out, out + errors


def test_every_package_is_pinned_once():
    folder = pathlib.Path(demo.__file__).parent
    names = [line.split("==")[0] for file in ("requirements", "constraints", "requirements-vllm")
             for line in (folder / f"{file}.txt").read_text(encoding="utf-8").splitlines()
             if line and not line.startswith(("#", "-c"))]
    assert len(names) == len(set(names)) > 100
    assert all("==" in line for line in (folder / "requirements-vllm.txt").read_text(encoding="utf-8").splitlines()
               if not line.startswith("#"))
