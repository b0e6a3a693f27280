# SPDX-License-Identifier: Apache-2.0
"""Runs the job of this folder with several seeds and with its controls, and prints a table; see scripts/demo-torch.

Needs the standard library only: the interpreter of the job is another one.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import resource
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE / "../colocated_rl/data"
SHORT = ["rollout.num_rollout=320"]
# Eight processes that import PyTorch, and vLLM in four of them, start in a minute or two on two quiet cores. On a busy
# machine they have needed more than the five minutes of job.yaml.
START = ["job.start_timeout_ms=900000"]
# Settings for each kind of engine. vLLM's KV cache and its own weights need memory of the virtual GPUs, too.
ENGINES = {"vllm": [*START, "job.library=python:torch_rl_vllm", "cluster.gpu_bytes=38 MiB"], "transformers": START}
# What the processes of the job find in their environment, unless the user has set it. vLLM reads all but the first two;
# without TORCHDYNAMO_DISABLE it would compile small functions of its sampler.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR",
               "VLLM_NO_USAGE_STATS": "1", "TORCHDYNAMO_DISABLE": "1"}
CONTROLS = {"updates off": "update.enabled=false", "shuffled rewards": "data.shuffle_rewards=true"}
BEFORE_MAX = 0.1  # Highest reward at which reinforcement may begin.
REWARD_MIN = 0.9  # Lowest reward of a run at its end.
SHORT_MIN = 0.6  # The same of a short run.
CONTROL_MAX = 0.2  # Highest reward of a control at its end.
MINUTES_MAX = 20  # Longest time of a run, from the start of the job to its end, on two quiet cores.
SHORT_MINUTES_MAX = 10  # The same of a short run.
# Minutes after which a run is ended: a busy machine needs several times as long as a quiet one.
LIMIT_MINUTES = 120
DIFFERENCE_MAX = 1e-4  # Largest difference of the log-probabilities of trainer and engine.
HELD_OUT = 600  # Prompts that --held-out takes out of the training data, at least.
PRINTED_EVERY = 20  # Steps between two lines of progress.


@dataclasses.dataclass
class Run:
    """What one run of the job has shown."""
    name: str
    seed: int
    steps: int = 0
    before: float = float("nan")  # Reward on unseen prompts when reinforcement began, and at the end.
    reward: float = float("nan")
    minutes: float = 0.0  # From the start of the job to its end.
    cpu_minutes: float = 0.0  # Of all processes of the job: user and system.
    difference: float = 0.0  # Largest difference of log-probabilities in any step.

    def read(self, item):
        """Take over what a line of `tandem run --json` says."""
        if item.get("kind") == "step":
            self.steps = item["step"]
            found = item["metrics"].get("logprob_diff_max")
            # A number that is not finite is printed as null.
            self.difference = max(self.difference, float("inf") if found is None else found)
        match = re.match(r"before +([0-9.]+) on", item.get("note", ""))
        if match:
            self.before = float(match[1])
        match = re.match(r"reward [0-9.]+ → ([0-9.]+) on", item.get("note", ""))
        if match:
            self.reward = float(match[1])

    def failures(self, least, minutes_max):
        """Return what is not as it should be; least is the lowest reward of a run that is no control, minutes_max the
        longest time of any run.

        The engines of the controls need not have the trainers' weights.
        """
        found = []
        if not self.minutes <= minutes_max:
            found.append(f"took {self.minutes:.1f} minutes, above {minutes_max}")
        if not self.before <= BEFORE_MAX:
            found.append(f"began at {self.before:.3f}, above {BEFORE_MAX}")
        if self.name in CONTROLS:
            if not self.reward < CONTROL_MAX:
                found.append(f"ended at {self.reward:.3f}, not under {CONTROL_MAX}")
            return found
        if not self.reward >= least:
            found.append(f"ended at {self.reward:.3f}, under {least}")
        if not self.difference < DIFFERENCE_MAX:
            found.append(f"log-probabilities differ by {self.difference:.1e}, not under {DIFFERENCE_MAX}")
        return found


def table(runs, least, minutes_max):
    """Return the lines of the table."""
    lines = ["| run | seed | steps | before | reward | minutes | CPU minutes | largest difference | |",
             "|---|---|---|---|---|---|---|---|---|"]
    return lines + [f"| {run.name} | {run.seed} | {run.steps} | {run.before:.3f} | {run.reward:.3f} | "
                    f"{run.minutes:.1f} | {run.cpu_minutes:.1f} | {run.difference:.1e} | "
                    f"{'; '.join(run.failures(least, minutes_max)) or 'as wanted'} |"
                    for run in runs]


def hold_out(folder):
    """Divide the training data into two files, so that settings can be chosen without the unseen prompts; return the
    job's settings for them.

    Prompts with the same digits stay together, as in the division into training data and unseen prompts.
    """
    lines = (DATA / "number_sorting.train.jsonl").read_text(encoding="utf-8").splitlines()
    groups = {}
    for line in lines:
        groups.setdefault("".join(sorted(json.loads(line)["answer"])), []).append(line)
    keys = sorted(groups)
    random.Random(20261123).shuffle(keys)
    taken = set()
    while sum(len(groups[key]) for key in taken) < HELD_OUT:
        taken.add(keys.pop())
    files = {}
    for setting, is_taken in (("data.train", False), ("data.unseen", True)):
        files[setting] = folder / f"{setting}.jsonl"
        files[setting].write_text("".join(line + "\n" for key, group in groups.items() if (key in taken) == is_taken
                                          for line in group), encoding="utf-8")
    return [f"{setting}={path}" for setting, path in files.items()]


def job_run(run, options, settings):
    """Run the job and fill in the Run; SystemExit if it fails."""
    out = options.out / f"{run.name.replace(' ', '-')}-{run.seed}"
    command = [options.tandem, "run", HERE / "job.yaml", f"job.python={options.python}", f"job.seed={run.seed}",
               *settings, "--json", "--out", out, "--overwrite"]
    begin, used_before = time.monotonic(), _children_seconds()
    errors = options.out / f"{out.name}.errors"
    with open(errors, "w", encoding="utf-8") as error_file, \
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=error_file, text=True, encoding="utf-8",
                             env={**ENVIRONMENT, **os.environ}) as process:
        timer = threading.Timer(options.limit_minutes * 60, process.terminate)
        timer.start()
        for line in process.stdout:
            item = json.loads(line)
            run.read(item)
            if "note" in item:
                print("    " + item["note"], flush=True)
            elif item["kind"] == "step" and item["step"] % PRINTED_EVERY == 0:
                print(f"    step {item['step']}/{item['steps']}  reward {item['reward'] or 0:.2f}  "
                      f"difference {run.difference:.1e}  {(time.monotonic() - begin) / 60:.1f} min", flush=True)
        status = process.wait()
        timer.cancel()
    run.minutes = (time.monotonic() - begin) / 60
    run.cpu_minutes = (_children_seconds() - used_before) / 60
    if status != 0:
        text = errors.read_text(encoding="utf-8")[-2000:]
        sys.exit(f"the run {run.name}, seed {run.seed}, failed with status {status} after {run.minutes:.1f} of at most "
                 f"{options.limit_minutes:.0f} minutes; all that it printed is in {errors}:\n{text}")


def _children_seconds():
    """Return the processor time of all processes that have ended and that this one has started, or they have."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main():
    """Run what the command line asks for; the exit status is 1 unless all is as wanted."""
    parser = argparse.ArgumentParser(description="Runs examples/torch_rl and prints a table of its results.",
                                     allow_abbrev=False,
                                     epilog="Settings of the job follow --, such as: -- rollout.num_rollout=300")
    parser.add_argument("--tandem", required=True, type=pathlib.Path, help="the program tandem")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the packages of requirements.txt")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/demo-torch"), help="folder for results")
    parser.add_argument("--engine", choices=ENGINES, default="vllm", help="what answers the prompts (vllm)")
    parser.add_argument("--short", action="store_true",
                        help=f"fewer steps; wanted is a reward of {SHORT_MIN} within {SHORT_MINUTES_MAX} minutes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="SEED")
    parser.add_argument("--controls", action="store_true",
                        help="in addition, with the first seed: updates off, and shuffled rewards")
    parser.add_argument("--held-out", action="store_true",
                        help="judge by prompts that are taken out of the training data, to choose settings")
    parser.add_argument("--limit-minutes", type=float, default=LIMIT_MINUTES,
                        help="minutes after which a run is ended; one that took longer than wanted is only reported "
                             f"({LIMIT_MINUTES})")
    parser.add_argument("settings", nargs="*", metavar="section.name=value")
    options = parser.parse_args()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    settings = [*ENGINES[options.engine], *(SHORT if options.short else []),
                *(hold_out(options.out) if options.held_out else []), *options.settings]
    least, minutes_max = (SHORT_MIN, SHORT_MINUTES_MAX) if options.short else (REWARD_MIN, MINUTES_MAX)
    name = "short" if options.short else "full"
    planned = [(Run(name, seed), []) for seed in options.seeds]
    if options.controls:
        planned += [(Run(control, options.seeds[0]), [setting]) for control, setting in CONTROLS.items()]
    for run, more in planned:
        print(f"{run.name}, seed {run.seed}, engines of {options.engine}", flush=True)
        job_run(run, options, [*settings, *more])
    runs = [run for run, _ in planned]
    print("\n".join(table(runs, least, minutes_max)))
    sys.exit(1 if any(run.failures(least, minutes_max) for run in runs) else 0)


if __name__ == "__main__":
    main()
