# SPDX-License-Identifier: Apache-2.0
"""Jobs whose trainer, engine and rewards are Python classes, run by `tandem run`."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import time

import pytest

import tandem

PACKAGE = pathlib.Path(tandem.__file__).parent.parent
COMMAND = PACKAGE.parent / "tandem"
EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python_job"
INHERITED = ("TANDEM_ADDRESS", "TANDEM_GPUS", "TANDEM_DEVICE", "RAY_ADDRESS", "PYTHONPATH")


class Folder:
    """A copy of the example, whose module may be changed."""

    def __init__(self, path):
        self.path = path
        for file in EXAMPLE.iterdir():
            if file.is_file():
                shutil.copy(file, path)

    def change(self, more):
        """Add a module that begins with the example's names and changes some."""
        (self.path / "changed.py").write_text("from letters import *\nfrom letters import Engine, Trainer, reward\n"
                                              + textwrap.dedent(more))
        return ("job.library=python:changed",)

    def tandem(self, command, *settings):
        """Run a command with the job file; return (exit status, output)."""
        environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
        done = subprocess.run([COMMAND, command, "job.yaml", f"job.python={sys.executable}", *settings], cwd=self.path,
                              env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
                              check=False)
        return done.returncode, done.stdout

    def run(self, *settings, steps=2):
        """Run the job for a few steps."""
        return self.tandem("run", "--json", "--out", "out", "--overwrite", f"rollout.num_rollout={steps}",
                           "job.max_restarts=0", "trainer.lr=0.5", *settings)


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def steps_of(output):
    """Return the JSON objects of a job's steps."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in lines if "step" in line]


def test_the_example_learns_and_continues_from_its_checkpoint(folder):
    status, output = folder.tandem("run", "--plain", "--out", "out", "rollout.num_rollout=12")
    assert status == 0, output
    before = float(output.split("before")[1].split()[0])
    after = float(output.split("→")[-1].split()[0])
    assert before < 0.1 and after > 0.9, output
    import numpy
    table = numpy.load(folder.path / "out" / "checkpoint" / "rank-0.npy")
    assert (table.argmax(axis=1) == (numpy.arange(8) + 1) % 8).all()
    status, output = folder.tandem("run", "--plain", "--resume", "out", "rollout.num_rollout=13")
    assert status == 0 and "after step 12 of 13" in output and "step  13/13" in output, output


def test_the_same_seed_gives_the_same_rewards_in_every_mode(folder):
    outputs = [folder.run("update.mode=" + mode, steps=4) for mode in ("donate", "copy", "names")]
    assert [status for status, _ in outputs] == [0, 0, 0], outputs
    rewards = [[step["reward"] for step in steps_of(output)] for _, output in outputs]
    assert len(rewards[0]) == 4 and rewards[0] == rewards[1] == rewards[2]


def test_plan_asks_the_module(folder):
    status, output = folder.tandem("plan", "cluster.gpu_bytes=2 MiB")
    assert status == 1 and "trainer/0" in output and "engine/1/0" in output, output


@pytest.mark.parametrize(("change", "words"), [
    ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
    ("del Engine", "no class Engine"),
    ("Trainer.layout = None", "no method layout()"),
    ("del reward", "either a function reward or a function rewards"),
    ("devices = 'cuda'", "no models on host"),
])
def test_a_wrong_module_is_refused_before_anything_runs(folder, change, words):
    status, output = folder.run(*folder.change(change))
    assert status == 1 and words in output, output


def test_an_exception_of_a_method_is_the_jobs_error_with_its_traceback(folder):
    status, output = folder.run(*folder.change("""
        class Trainer(Trainer):
            def step(self, batch):
                if self.group.rank == 1:
                    raise ValueError(f"rank 1 refuses step {batch.step}")
                return super().step(batch)
    """))
    assert status == 1 and "ValueError: rank 1 refuses step 1" in output, output
    assert "changed.py" in output, output


def test_an_engine_refuses_a_tensor_by_an_exception(folder):
    status, output = folder.run("update.mode=names", *folder.change("""
        class Engine(Engine):
            def load(self, weights, tensors):
                raise KeyError(f"{tensors[0].name} is unknown")
    """))
    assert status == 1 and "table is unknown" in output, output


def test_an_engine_without_a_layout_gets_whole_tensors(folder):
    status, output = folder.run(*folder.change("""
        class Engine(Engine):
            layout = None
    """), "update.mode=names", steps=3)
    assert status == 0 and steps_of(output)[-1]["reward"] > 0.5, output


ATTACHES = """
        import json

        class Trainer(Trainer):
            def __init__(self, context):
                super().__init__(context)
                self.rank = context.rank

            def attach(self, bucket):
                if self.rank == 1:
                    return None
                tensors = [[view.name, list(view.shape), view.stride, float(view.numpy()[0, 0])]
                           for view in bucket.tensors or []]
                return json.dumps([self.rank, bucket.index, bucket.buckets_count, tensors]).encode()
"""


@pytest.mark.parametrize("mode", ["names", "donate"])
def test_attached_bytes_reach_the_engine(folder, mode):
    status, output = folder.run("update.mode=" + mode, *folder.change(ATTACHES + """
        class Engine(Engine):
            def __init__(self, context):
                super().__init__(context)
                self.number = context.engine

            def attached(self, index, buckets_count, data):
                with open(f"attached-{self.number}", "a") as file:
                    file.write(f"{index} {buckets_count} {data.decode()}\\n")
    """))
    assert status == 0, output
    lines = (folder.path / "attached-0").read_text().splitlines()
    assert len(lines) >= 2 and not (folder.path / "attached-1").exists(), output
    tensors = [["table", [8, 8], [8, 1], 0.0]] if mode == "names" else []
    assert lines[0] == f"0 1 {json.dumps([0, 0, 1, tensors])}"


def test_the_first_rank_of_an_engine_gets_what_was_attached_for_all(folder):
    status, output = folder.run(
        "engine.num_engines=1", "engine.rollout_num_gpus_per_engine=2", *folder.change("""
        class Trainer(Trainer):
            def attach(self, bucket):
                return f"rank {self.group.rank}".encode() if self.group.rank == 1 else None

        class Engine(Engine):
            def __init__(self, context):
                super().__init__(context)
                self.number = context.rank

            def gathered(self, index, buckets_count, parts):
                with open(f"gathered-{self.number}", "a") as file:
                    file.write(f"{index} {buckets_count} {parts}\\n")
    """))
    assert status == 0, output
    lines = (folder.path / "gathered-0").read_text().splitlines()
    assert lines[0] == "0 1 [b'', b'rank 1']" and not (folder.path / "gathered-1").exists(), output


def test_trainers_do_not_wait_for_an_engine_on_other_gpus_that_refuses_a_bucket(folder):
    """No rank of the engine loads the bucket, but each receives what its trainer rank sends."""
    status, output = folder.run(
        "cluster.num_gpus=4", "engine.colocate=false", "engine.num_engines=1", "engine.rollout_num_gpus_per_engine=2",
        "update.mode=copy", *folder.change("""
        class Trainer(Trainer):
            def attach(self, bucket):
                return b"bytes"

        class Engine(Engine):
            def gathered(self, index, buckets_count, parts):
                raise ValueError(f"these {len(parts)} parts are not for me")

            def attached(self, index, buckets_count, data):
                open("accepted", "a").close()
    """))
    assert status == 1 and "these 2 parts are not for me" in output, output
    assert "in time" not in output and not (folder.path / "accepted").exists(), output


def test_attached_bytes_without_a_reader_or_too_many_are_refused(folder):
    status, output = folder.run(*folder.change(ATTACHES))
    assert status == 1 and "bytes to a bucket, but the class Engine has no method attached()" in output, output
    assert "what trainer rank 0 described" in output, output
    status, output = folder.run(*folder.change("""
        class Trainer(Trainer):
            def attach(self, bucket):
                return bytes((4 << 20) + 1)
    """))
    assert status == 1 and "attaches 4194305 bytes to a bucket, at most 4194304" in output, output


@pytest.mark.parametrize("function", [
    "async def reward(prompt, answer, completion):\n    await asyncio.sleep(0)\n    return right(answer, completion)",
    "def rewards(requests):\n    return [right(request.answer, request.completion) for request in requests]",
], ids=["async", "batched"])
def test_rewards_may_be_async_or_batched(folder, function):
    change = "import asyncio\nwanted = reward\ndel reward\ndef right(answer, completion):\n" \
             "    return wanted(None, answer, completion)\n" + function
    status, output = folder.run(*folder.change(change), steps=4)
    assert status == 0 and steps_of(output)[-1]["reward"] > 0.5, output


def test_failed_rewards_are_counted_against_a_bound(folder):
    prompt = json.loads((folder.path / "unseen.jsonl").read_text().splitlines()[5])["prompt"]
    change = folder.change(f"""
        def reward(prompt, answer, completion):
            if prompt == {prompt!r}:
                raise OSError("the judge is out")
            return 0.5
    """)
    status, output = folder.run(*change, steps=1)  # The evaluation has one answer to that prompt.
    assert status == 1 and "1 of 64 rewards failed, rollout.reward_failures_max allows 0" in output, output
    assert "OSError: the judge is out" in output, output
    status, output = folder.run(*change, "rollout.reward_failures_max=1", steps=1)
    assert status == 0, output


def test_a_job_survives_the_deaths_of_its_processes(folder):
    undisturbed = folder.run(steps=4)[1]
    change = folder.change("""
        import os

        wanted = reward

        def die_once(name):
            try:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os._exit(3)

        class Engine(Engine):
            def __init__(self, context):
                super().__init__(context)
                self.number = context.engine

            def generate(self, prompts, sampling):
                if self.number == 1 and sampling.temperature > 0:
                    die_once("engine")
                return super().generate(prompts, sampling)

        class Trainer(Trainer):
            def step(self, batch):
                if self.group.rank == 1 and batch.step == 2:
                    die_once("trainer")
                return super().step(batch)

        def rewards(requests):
            if len(requests) > 64 and os.path.exists("trainer"):
                die_once("rewards")
            return [wanted(request.prompt, request.answer, request.completion) for request in requests]

        del reward
    """)
    status, output = folder.run(*change, "job.max_restarts=2", "job.save_interval=1", steps=4)
    assert status == 0, output
    assert all((folder.path / name).exists() for name in ("engine", "trainer", "rewards")), output
    assert "engine 1 lost" in output and "restart" in output, output
    # The results are those of an undisturbed run.
    assert steps_of(output)[-1]["reward"] == steps_of(undisturbed)[-1]["reward"], output


def test_a_stopped_rewards_actor_is_named_and_restarted(folder):
    undisturbed = folder.run(steps=2)[1]
    change = folder.change("""
        import os
        import signal

        wanted = reward

        def rewards(requests):
            if len(requests) > 64 and not os.path.exists("stopped"):
                open("stopped", "x").close()
                os.kill(os.getpid(), signal.SIGSTOP)
            return [wanted(request.prompt, request.answer, request.completion) for request in requests]

        del reward
    """)
    status, output = folder.run(*change, "job.max_restarts=1", "job.save_interval=1", "rollout.rewards_timeout_ms=4000",
                                steps=2)
    assert status == 0 and (folder.path / "stopped").exists(), output
    assert "restart 1 of 1" in output and "method score of actor rewards" in output, output
    assert steps_of(output)[-1]["reward"] == steps_of(undisturbed)[-1]["reward"], output


def test_a_loop_of_ones_own_learns():
    environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
    # `tandem python` runs the python3 of the path.
    environment["PATH"] = f"{os.path.dirname(sys.executable)}:{environment['PATH']}"
    done = subprocess.run([COMMAND, "python", EXAMPLE.parent / "python_loop" / "train.py"], env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("rollout ")]
    assert done.returncode == 0 and len(lines) == 16, done.stdout
    assert int(lines[0][2]) < 20 and int(lines[-1][2]) > 80, done.stdout
    assert [int(line[-1]) for line in lines] == list(range(2, 18)), done.stdout


# Classes that can compute log-probabilities; engine 1 computes from a copy of the table that it makes once.
STALE = """
    import numpy
    from tandem.job import Slice

    class Trainer(Trainer):
        def logprobs(self, batch):
            assert not batch.supervised and len(batch.samples) == 8
            return [numpy.log(softmax(self.table[numbers(sample.prompt)]))[range(3), sample.tokens]
                    for sample in batch.samples]

    class Engine(Engine):
        packed = None

        def __init__(self, context):
            super().__init__(context)
            self.is_stale = context.engine == 1 and context.setting("engine.stale", False)

        def flush_cache(self):
            if self.is_stale and self.packed is None:
                self.packed = self.table.copy()

        def served(self, tensor, part):
            assert tensor.name == "table" and (part is None or part.offset == (0, 0))
            return self.packed if part is None or self.packed is None else ("packed", self.packed)

        def generate(self, prompts, sampling):
            kept = self.table
            self.table = kept if self.packed is None else self.packed
            try:
                return super().generate(prompts, sampling)
            finally:
                self.table = kept
"""


@pytest.mark.parametrize("mode", ["donate", "names"])
def test_an_engine_that_computes_from_a_stale_copy_is_taken_out(folder, mode):
    layout = "Engine.layout = None\n" if mode == "names" else ""
    change = (*folder.change(textwrap.dedent(STALE) + layout), "update.mode=" + mode, "update.logprob_tolerance=1e-5")
    status, right = folder.run(*change, steps=3)
    assert status == 0 and "lost" not in right, right
    status, output = folder.run(*change, "engine.stale=true", steps=3)
    assert status == 0 and "step 2 is repeated: 1 of 2 engines are over update.logprob_tolerance" in output, output
    assert "engine 1 lost: its log-probabilities of version 2 differ from the trainer's by up to" in output, output
    words = "table: the copy" if mode == "names" else "packed: the copy of table"
    assert f"the first tensor that differs is {words} from which the engine computes" in output, output
    # Nothing was learned from its answers.
    assert [step["reward"] for step in steps_of(output)] == [step["reward"] for step in steps_of(right)]


def test_a_tolerance_needs_log_probabilities_of_the_trainer(folder):
    status, output = folder.run("update.logprob_tolerance=1e-5")
    assert status == 1 and "has no function logprobs()" in output, output


OUTSIDE = """
    import mmap
    from tandem.job import Region

    class Engine(Engine):
        kept = None

        @classmethod
        def regions(cls, context):
            return [*super().regions(context), Region("graphs", 4 << 20, outside=True)]

        def resume(self, tag):
            self.kept = bytearray(4 << 20)

        def pause(self, tag):
            assert tag == "graphs" and self.kept is not None
            self.kept = None

        def generate(self, prompts, sampling):
            assert self.kept is not None
            return super().generate(prompts, sampling)

    class Trainer(Trainer):
        @classmethod
        def regions(cls, context):
            return [*super().regions(context), Region("torch", 64 << 20, keep=False, outside=True)]

        def __init__(self, context):
            super().__init__(context)
            self.memory = None
            self.used = context.setting("trainer.used_mib", 64) << 20

        def start(self, memory):
            assert "torch" not in memory and self.memory is not None
            super().start(memory)

        def resume(self, tag):
            assert tag == "torch" and self.memory is None
            if not self.used:
                raise MemoryError("nothing is left")
            self.memory = mmap.mmap(-1, self.used, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            for page in range(0, self.used, 4096):
                self.memory[page] = 1

        def pause(self, tag):
            assert tag == "torch"
            self.memory.close()
            self.memory = None

        def step(self, batch):
            assert self.memory is not None
            return super().step(batch)
"""


def test_a_class_can_ask_which_of_its_regions_are_paused(folder):
    status, output = folder.run(*folder.change("""
        from tandem import memory
        from tandem.job import Region

        class Engine(Engine):
            @classmethod
            def regions(cls, context):
                return [*super().regions(context), Region("kv_cache", 1, keep=False)]

            def flush_cache(self):
                memory.check("weights")
                assert not memory.is_resident("kv_cache") and not memory.is_resident() and memory.regions() == []
                memory.check("kv_cache")
    """))
    assert status == 1 and "MemoryPausedError: the memory 'kv_cache' is paused" in output, output


def test_memory_that_a_class_allocates_itself_takes_part_in_the_phases(folder):
    change = (*folder.change(OUTSIDE), "cluster.gpu_bytes=256 MiB")
    status, output = folder.tandem("plan", *change)
    assert status == 0 and "66.0             6.0           190.0" in output, output
    status, output = folder.run(*change, steps=2)
    assert status == 0, output
    events = json.loads((folder.path / "out" / "trace.json").read_text())
    names = [event["name"] for event in events]
    assert all(names.count(name) >= 4 for name in ("resume torch", "pause torch", "resume graphs", "pause graphs"))


@pytest.mark.parametrize(("change", "words"), [
    ("Trainer.pause = None", "Trainer declares the outside memory 'torch', and has no method pause()"),
    ("Trainer.resume = None", "Trainer declares the outside memory 'torch', and has no method resume()"),
])
def test_outside_memory_needs_both_methods(folder, change, words):
    status, output = folder.run(*folder.change(textwrap.dedent(OUTSIDE) + change), "cluster.gpu_bytes=256 MiB")
    assert status == 1 and words in output, output


def test_a_class_that_cannot_resume_its_memory_ends_the_job(folder):
    status, output = folder.run(*folder.change(OUTSIDE), "cluster.gpu_bytes=256 MiB", "trainer.used_mib=0")
    assert status == 1 and 'resume("torch")' in output and "MemoryError: nothing is left" in output, output


def test_more_outside_memory_than_declared_is_reported_with_both_numbers(folder):
    status, output = folder.run(*folder.change(OUTSIDE), "cluster.gpu_bytes=256 MiB", "trainer.used_mib=128", steps=1)
    assert status == 0 and "trainer/0 declares 64.0 MiB of torch, and the device reports 128.0 MiB" in output, output


def test_a_module_that_imports_for_too_long_is_reported_with_the_setting(folder):
    settings = folder.change("import time\ntime.sleep(30)\n")
    begin = time.monotonic()
    status, output = folder.tandem("plan", *settings, "job.start_timeout_ms=500")
    assert status == 1 and "within 500 ms: raise job.start_timeout_ms" in output, output
    assert time.monotonic() - begin < 20
