# SPDX-License-Identifier: Apache-2.0
"""support.py - runs jobs in sandboxes and checks that they leave no processes, files or shared memory."""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
JOB = ROOT / "examples" / "colocated_rl" / "job.yaml"
SHORT = ["rollout.num_rollout=4", "rollout.warmup_steps=3"]
ENDLESS = ["rollout.num_rollout=1000000", "rollout.warmup_steps=2"]
LOST_S = 120  # A job that takes longer counts as hanging, in a build that is not slow.


class Failure(Exception):
    """A condition of a test that does not hold."""


def require(condition, text):
    if not condition:
        raise Failure(text)


class Process(subprocess.Popen):
    """A process that knows how long it may run."""
    limit_s = LOST_S


class Sandbox:
    """A sandbox: a folder that is TMPDIR and working directory of the processes in it, so that they
    and their files can be told from those of other tests."""

    def __init__(self, build, slow=1.0):
        self.build = pathlib.Path(build).resolve()
        self.slow = slow  # Factor for timeouts in this build.
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="job-test-"))
        self.tmp = self.path / "tmp"
        self.tmp.mkdir()
        self.shm = shared_memory()

    def environment(self, **more):
        environment = dict(os.environ, TMPDIR=str(self.tmp), OPENBLAS_NUM_THREADS="1", **more)
        for name in ("TANDEM_ADDRESS", "TANDEM_REDIS", "NO_COLOR"):
            environment.pop(name, None)
        return environment

    def library(self):
        return self.build / "examples" / "colocated_rl" / "colocated_rl.so"

    def start(self, *words, library=None, **options):
        """Starts `tandem run` with the example's job and this build's library."""
        return self.tandem("run", JOB, f"job.library={library or self.library()}", *words, **options)

    def tandem(self, *words, environment=None, overwrite=True, **options):
        """Starts a command. A job may write over what an earlier one of the test has left, unless `overwrite` is
        false."""
        if overwrite and words[0] == "run" and "--out" in words[:-1] and "--resume" not in words:
            words = (*words, "--overwrite")
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        process = Process([str(self.build / "tandem"), *map(str, words)], cwd=self.path,
                          env=environment or self.environment(), text=True, **options)
        process.limit_s = self.slow * LOST_S
        return process

    def run(self, *words, **options):
        """Runs the job to its end and returns (exit code, stdout, stderr)."""
        return finish(self.start(*words, **options))

    def processes(self):
        """Returns {pid: name} of all processes with this sandbox's folder in their environment, working
        directory or open files. Zombies have none of these and are not included."""
        mark = str(self.path)
        found = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid() and belongs(int(entry), mark):
                found[int(entry)] = name_of(int(entry))
        return found

    def left_behind(self):
        left = [f"process {pid} ({name})" for pid, name in self.processes().items()]
        left += [f"/dev/shm/{name}" for name in sorted(shared_memory() - self.shm)]
        left += [f"$TMPDIR/{name}" for name in sorted(os.listdir(self.tmp))]
        return left

    def require_clean(self, but="nothing"):
        """Checks that within two seconds nothing is left except names with these prefixes."""
        end = time.monotonic() + 2 * self.slow
        while left := [thing for thing in self.left_behind() if not thing.startswith(but)]:
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        require(not left, "left behind: " + ", ".join(left))

    def clear(self):
        """Kills all processes of the sandbox and removes it."""
        while left := self.processes():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        shutil.rmtree(self.tmp, ignore_errors=True)
        self.tmp.mkdir()

    def destroy(self):
        self.clear()
        shutil.rmtree(self.path, ignore_errors=True)


def shared_memory():
    """Returns Tandem's names in /dev/shm; other programs may use it, too."""
    return {name for name in os.listdir("/dev/shm") if "tandem" in name or "tdm" in name}


def belongs(pid, mark):
    folder = f"/proc/{pid}"
    try:
        if mark in os.readlink(f"{folder}/cwd"):
            return True
        with open(f"{folder}/environ", "rb") as file:
            if mark.encode() in file.read():
                return True
        return any(mark in os.readlink(f"{folder}/fd/{fd}") for fd in os.listdir(f"{folder}/fd"))
    except OSError:
        return False  # The process has ended.


def name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return "?"


def on_cuda(sandbox, gpus="gpus", **more):
    """Returns the environment of a node with four GPUs, whose memory consists of files in the folder gpus."""
    files = sandbox.path / gpus
    files.mkdir(exist_ok=True)
    fakes = sandbox.build / "tests"
    return {"FAKE_CUDA_DIRECTORY": str(files), "FAKE_CUDA_DEVICES": "4", "FAKE_CUDA_BYTES": str(64 << 20),
            "FAKE_CUDA_MACHINE": str(zlib.crc32(gpus.encode()) % 256),
            "TANDEM_CUDA_LIBRARY": str(fakes / "cuda_fake.so"),
            "TANDEM_NCCL_LIBRARY": str(fakes / "nccl_fake.so"),
            "COLOCATED_RL_CUBLAS_LIBRARY": str(fakes / "cublas_fake.so"), **placeholder_kernels(sandbox), **more}


def placeholder_kernels(sandbox):
    """Returns variables that name a placeholder for each kernel image that the build lacks.

    Only nvcc builds these images. The fake CUDA library has its own kernels, which a C compiler built from the same
    sources, and checks only the first bytes of an image. An image that the build has is embedded and needs no name.
    """
    placeholder = sandbox.path / "kernels.ptx"
    placeholder.write_text("// This image contains no kernels.\n", encoding="utf-8")
    images = {"TANDEM_CUDA_KERNELS": "kernels.fatbin", "COLOCATED_RL_KERNELS": "colocated_rl_ops.fatbin"}
    return {name: str(placeholder) for name, image in images.items() if not (sandbox.build / image).exists()}


# The leak sanitizer's message about a thread that was killed while it scanned. It is not a finding,
# and goes to stderr although findings go to files.
UNSEEN_THREAD = re.compile(r"^(\([^)]*\) )?==\d+==Unable to get registers from thread \d+\.\n", re.MULTILINE)


def finish(process):
    try:
        out, err = process.communicate(timeout=process.limit_s)
    except subprocess.TimeoutExpired as error:
        process.kill()
        raise Failure(f"no end after {process.limit_s:.0f} s") from error
    return process.returncode, out, UNSEEN_THREAD.sub("", err or "")


def steps_of(out):
    """Returns the reinforcement-learning steps among lines of JSON; every line must be an object."""
    objects = [json.loads(line) for line in out.splitlines()]
    require(all(isinstance(item, dict) for item in objects), "a line of --json is no object")
    return [item for item in objects if item.get("kind") == "step"]


def notes_of(out):
    return [item["note"] for item in map(json.loads, out.splitlines()) if "note" in item]


def numbers_of(step):
    """Returns the numbers of a step that must not depend on machine or time."""
    return step["step"], step["reward"], step["kl"], tuple(sorted(step["metrics"].items()))


def read_until(process, kind, number):
    """Reads and returns lines of JSON up to that of this step ("step" or "warmup")."""
    lines = ""
    for line in process.stdout:
        lines += line
        item = json.loads(line)
        if item.get("kind") == kind and item["step"] >= number:
            return lines
    raise Failure(f"ended before {kind} {number}: {process.stderr.read()}")


def wait_for(process, kind, number):
    read_until(process, kind, number)


def wait_for_note(process, pattern):
    """Reads and returns lines of JSON up to the first note that begins with this pattern."""
    lines = ""
    for line in process.stdout:
        lines += line
        if re.match(pattern, json.loads(line).get("note", "")):
            return lines
    raise Failure(f"ended before the note {pattern!r}: {process.stderr.read()}")


def safetensors(tensors):
    """Returns the bytes of a safetensors file with these tensors: {name: (dtype, shape, bytes)}."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def main(tests):
    """PROGRAM BUILD_DIR [SLOW [TEST …]]: runs each test, or the named ones, in a sandbox of
    its own and reports all failures."""
    failed = 0
    unknown = set(sys.argv[3:]) - {test.__name__ for test in tests}
    if unknown:
        sys.exit(f"no test is named {', '.join(sorted(unknown))}; the tests are " +
                 ", ".join(test.__name__ for test in tests))
    for test in [test for test in tests if test.__name__ in sys.argv[3:] or len(sys.argv) <= 3]:
        sandbox = Sandbox(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0)
        begin = time.monotonic()
        try:
            test(sandbox)
            print(f"ok      {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Failure as failure:
            failed += 1
            print(f"FAILED  {test.__name__}: {failure}", flush=True)
        finally:
            sandbox.destroy()
    return 1 if failed else 0
