#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""slurm.py BUILD - `srun tandem launch` with a real slurmctld and four slurmd.

Everything runs in network, mount and PID namespaces of its own, so that the kernel ends it with the test.  Each slurmd has
an address and a port of its own on the loopback device.  Slurm's daemons change users, for which the test must be root.
"""
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "job"))
import support  # noqa: E402

INSIDE = "TANDEM_SLURM_INSIDE"  # Variable that is set in the namespaces.
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
PROGRAMS = ("slurmctld", "slurmd", "srun", "scancel", "munged", "unshare", "ip")
NODES = ("n1", "n2", "n3", "n4")
START_SECONDS = 30  # Longest time until Slurm's nodes are idle.
JOB_SECONDS = 90  # Longest time of a job.
SILENT_SECONDS = 20  # Time after which slurmctld gives up a slurmd that does not answer.
END_SECONDS = 120  # Longest time from that loss to the end of the step.
GPUS = 2  # GPUs of each node of the reinforcement-learning job: those of one of its two engines.
STEPS = 4
ROLES = ("tandem", "spread", "trainer", "engine")  # How the names of Tandem's processes and of its actors begin.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}({first})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={directory}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
SlurmdSpoolDir={directory}/spool-%n
StateSaveLocation={directory}/state
ReturnToService=2
SlurmdTimeout={silent}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
PartitionName=all Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
"""


def enter():
    """Returns a directory for the test inside of the namespaces.  Outside, becomes this program inside."""
    if INSIDE in os.environ:
        subprocess.run(["mount", "-t", "tmpfs", "none", "/dev/shm"], check=True)
        directory = pathlib.Path("/dev/shm/slurm")
        directory.mkdir(mode=0o755)
        return directory
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        print(f"skipped: Slurm's test needs {', '.join(missing) or 'root'}")
        sys.exit(77)
    if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
        print("skipped: network namespaces are not allowed")
        sys.exit(77)
    sys.stdout.flush()
    os.execvpe(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})
    return None  # execvpe() does not return.


def processes():
    """Returns the names of the processes in this PID namespace by PID, without zombies."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and entry.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX":
                found[int(entry.name)] = entry.joinpath("comm").read_text().strip()
        except OSError:
            continue  # The process has ended.
    return found


def tandem_processes():
    return {pid: name for pid, name in processes().items() if name.startswith(ROLES)}


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def processes_with(variable):
    """Returns the PIDs of the processes that have this variable and value in their environment."""
    found = []
    for pid in processes():
        try:
            if variable.encode() in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue  # The process has ended.
    return found


def parent_of(pid):
    try:
        return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0  # The process has ended.


class Slurm:
    """munged, slurmctld and a slurmd for each of NODES."""

    def __init__(self):
        host = socket.gethostname().split(".")[0]
        self.addresses = {name: f"10.98.0.{number}" for number, name in enumerate(NODES, 11)}
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for address in self.addresses.values():
            subprocess.run(["ip", "addr", "add", address, "dev", "lo"], check=True)
        self.write_hosts(host)
        self.write_configuration(host)
        for folder in ("state", *(f"spool-{name}" for name in NODES)):
            DIRECTORY.joinpath(folder).mkdir()
        os.environ["SLURM_CONF"] = str(DIRECTORY / "slurm.conf")
        words = [f"--{name}-file={DIRECTORY}/munge.{name}" for name in ("key", "pid", "log", "seed")]
        self.children = [self.start("munged", "--force", "--foreground", f"--socket={DIRECTORY}/munge.socket", *words)]
        self.wait_until(DIRECTORY.joinpath("munge.socket").exists, "munged listens")
        self.children.append(self.start("slurmctld", "-D"))
        self.daemons = {name: self.start("slurmd", "-D", "-N", name) for name in NODES}
        self.wait_until(lambda: self.states() == ["idle"] * len(NODES), "all nodes are idle")

    def write_hosts(self, host):
        hosts = DIRECTORY / "hosts"
        lines = ["127.0.0.1 localhost", f"{self.addresses['n1']} {host}"]
        lines += [f"{address} {name}" for name, address in self.addresses.items()]
        hosts.write_text("\n".join(lines) + "\n")
        subprocess.run(["mount", "--bind", hosts, "/etc/hosts"], check=True)

    def write_configuration(self, host):
        text = CONFIGURATION.format(host=host, directory=DIRECTORY, first=self.addresses["n1"], silent=SILENT_SECONDS)
        nodes = [f"NodeName={name} NodeHostname={host} NodeAddr={address} Port={17000 + number} CPUs=2"
                 for number, (name, address) in enumerate(self.addresses.items())]
        before, partition = text.split("PartitionName", 1)
        DIRECTORY.joinpath("slurm.conf").write_text(before + "\n".join(nodes) + "\nPartitionName" + partition)
        DIRECTORY.joinpath("cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = DIRECTORY / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))

    def lose_machine(self, name):
        """Kills the slurmd of a node and all processes of its steps, as when the machine loses power."""
        tasks = processes_with(f"SLURMD_NODENAME={name}")
        for pid in {parent_of(pid) for pid in tasks}:
            if processes().get(pid) == "slurmstepd":
                os.kill(pid, signal.SIGKILL)
        self.daemons[name].kill()
        self.daemons[name].wait()
        while tasks := processes_with(f"SLURMD_NODENAME={name}"):
            for pid in tasks:
                kill(pid)

    def start_machine(self, name):
        """Starts the slurmd of a node again, and waits until all nodes take jobs."""
        self.daemons[name] = self.start("slurmd", "-D", "-N", name)
        self.wait_until(lambda: self.states() == ["idle"] * len(NODES), f"{name} is back")

    def start(self, *words):
        with DIRECTORY.joinpath(f"{words[0]}.out").open("ab") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def states(self):
        done = subprocess.run(["sinfo", "-h", "-N", "-o", "%T"], capture_output=True, text=True, check=False)
        return done.stdout.split()

    def wait_until(self, holds, what):
        deadline = time.monotonic() + START_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                logs = "".join(path.read_text()[-1000:] for path in DIRECTORY.glob("*.out"))
                raise RuntimeError(f"Slurm does not start: {what}: not within {START_SECONDS} s\n{logs}")
            time.sleep(0.05)

    def end(self):
        for child in (*self.children, *self.daemons.values()):
            child.kill()
            child.wait()


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.slurm = Slurm()

    @classmethod
    def tearDownClass(cls):
        cls.slurm.end()

    def setUp(self):
        token = DIRECTORY / "token"
        token.touch(0o600)
        token.write_bytes(os.urandom(32))
        self.files = DIRECTORY / "tmp"
        self.files.mkdir()
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("TANDEM_")}
        self.environment.update(TMPDIR=str(self.files), TANDEM_TOKEN_FILE=str(token))

    def tearDown(self):
        self.files.rmdir()  # Fails if anything is left.

    def srun(self, *words, nodes=4, options=()):
        return subprocess.Popen(["srun", f"--nodes={nodes}", "--ntasks-per-node=1", "--cpus-per-task=2", *options,
                                 str(BUILD / "tandem"), "launch", *map(str, words)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment, text=True)

    def run_job(self, *words, **options):
        job = self.srun(*words, **options)
        try:
            said, complained = job.communicate(timeout=JOB_SECONDS)
        finally:
            job.kill()
        return job.returncode, said, complained

    def directory_of(self, node):
        """Returns the directory of the node of Tandem on a node of Slurm."""
        for pid in processes_with(f"SLURMD_NODENAME={node}"):
            if processes().get(pid) == "tandemd":
                text = pathlib.Path(f"/proc/{pid}/environ").read_text()
                return next(line.partition("=")[2] for line in text.split("\0") if line.startswith("TMPDIR="))
        return self.fail(f"no daemon runs on {node}")

    def expect_nothing_left(self):
        """Waits until no process of Tandem runs and no file of it is left, at most for a few seconds: what srun does not
        wait for may still be ending."""
        deadline = time.monotonic() + 10
        while (tandem_processes() or list(self.files.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertEqual(tandem_processes(), {})
        self.assertEqual(list(self.files.iterdir()), [])
        self.assertEqual([path.name for path in pathlib.Path("/dev/shm").iterdir()], ["slurm"])

    def test_job_runs_on_four_nodes_and_nothing_is_left(self):
        code, said, complained = self.run_job("--", BUILD / "tests" / "spread_program", 4)
        self.assertEqual(code, 0, complained)
        self.assertEqual(sorted(said.split("\n")), ["", *(f"rank on {name}" for name in NODES)])
        self.expect_nothing_left()

    def learning_words(self, *words):
        """Returns the command of the example's reinforcement-learning job, with a whole copy of the trainer's weights
        on each of two nodes."""
        library = BUILD / "examples" / "colocated_rl" / "colocated_rl.so"
        out = DIRECTORY / self.id().rpartition(".")[2]
        return (BUILD / "tandem", "run", support.JOB, f"job.library={library}", "--json", "--overwrite", "--out", out,
                "rollout.warmup_steps=15", "trainer.warmup_lr=1e-2", "trainer.warmup_lr_warmup_iters=2",
                "trainer.replicas=2", *words)

    def test_colocated_job_learns_on_two_nodes_the_same_and_leaves_nothing(self):
        self.environment["OPENBLAS_NUM_THREADS"] = "1"
        words = self.learning_words(f"rollout.num_rollout={STEPS}")
        alone = subprocess.run([str(word) for word in words], env=self.environment, capture_output=True, text=True,
                               timeout=JOB_SECONDS, check=False)
        self.assertEqual(alone.returncode, 0, alone.stderr)
        code, said, complained = self.run_job("--num-gpus", GPUS, "--", *words, nodes=2)
        self.assertEqual(code, 0, complained)
        self.expect_nothing_left()
        found, expected = ([support.numbers_of(step) for step in support.steps_of(lines)]
                           for lines in (said, alone.stdout))
        self.assertEqual(len(found), STEPS)
        self.assertEqual(found, expected)
        # No node has more than GPUS.
        self.assertIn(f"  {2 * GPUS} GPUs", support.notes_of(said)[0])

    def test_canceled_colocated_job_leaves_nothing(self):
        self.environment["OPENBLAS_NUM_THREADS"] = "1"
        job = self.srun("--num-gpus", GPUS, "--", *self.learning_words("rollout.num_rollout=1000000"), nodes=2)
        while '"kind":"step"' not in job.stdout.readline():
            self.assertIsNone(job.poll())
        subprocess.run(["scancel", "--user", "root"], check=True)
        job.communicate(timeout=JOB_SECONDS)
        self.assertNotEqual(job.returncode, 0)
        self.expect_nothing_left()

    def test_exit_code_is_that_of_the_command(self):
        code, _, complained = self.run_job("--", "sh", "-c", "exit 7", nodes=2)
        self.assertEqual(code, 7, complained)
        self.expect_nothing_left()

    def start_waiting(self, *options):
        """Starts a job on two nodes whose command waits for a file; returns it and the file."""
        file = DIRECTORY / self.id().rpartition(".")[2]
        job = self.srun("--", "sh", "-c", f"echo running; while [ ! -e {file} ]; do sleep 0.1; done", nodes=2,
                        options=options)
        limit = threading.Timer(END_SECONDS, job.kill)
        limit.start()
        self.addCleanup(limit.cancel)
        self.assertEqual(job.stdout.readline(), "running\n")
        return job, file

    def kill_node_of_task(self, number):
        """Kills the daemon that a task has started, so that the task fails."""
        victims = [pid for pid in processes_with(f"SLURM_PROCID={number}")
                   if processes().get(pid, "").startswith(("tandemd", "tandem-super"))]
        self.assertGreaterEqual(len(victims), 2)
        for pid in victims:
            kill(pid)

    def test_failure_of_one_task_is_the_exit_code_and_the_command_goes_on(self):
        job, file = self.start_waiting()
        self.kill_node_of_task(1)
        while "node 1 ended before the head node" not in (said := job.stderr.readline()):
            self.assertNotEqual(said, "", "the task does not say why it fails")
        self.assertNotEqual(processes_with("SLURM_PROCID=0"), [])
        file.touch()
        job.communicate(timeout=JOB_SECONDS)
        self.assertEqual(job.returncode, 1)
        self.expect_nothing_left()

    def test_failure_of_one_task_ends_all_if_that_is_asked_for(self):
        job, _ = self.start_waiting("--kill-on-bad-exit=1")
        self.kill_node_of_task(1)
        _, complained = job.communicate(timeout=JOB_SECONDS)
        self.assertIn("node 1 ended before the head node", complained)
        self.assertNotEqual(job.returncode, 0)
        self.expect_nothing_left()

    def test_lost_machine_ends_the_job_and_nothing_is_left(self):
        job, _ = self.start_waiting()
        lost = "n2"
        self.assertEqual({name for name in NODES if processes_with(f"SLURMD_NODENAME={name}")}, {"n1", lost})
        directory = self.directory_of(lost)
        self.slurm.lose_machine(lost)
        _, complained = job.communicate(timeout=END_SECONDS)
        self.assertNotEqual(job.returncode, 0)
        self.assertRegex(complained.lower(), "node.?fail")
        shutil.rmtree(directory)  # It has nobody who could remove it.
        self.expect_nothing_left()
        self.slurm.start_machine(lost)
        code, said, complained = self.run_job("--", BUILD / "tests" / "spread_program", 4)
        self.assertEqual((code, len(said.splitlines())), (0, 4), complained)
        self.expect_nothing_left()

    def test_canceled_job_leaves_nothing(self):
        job = self.srun("--", "sh", "-c", "echo running; sleep 1000", nodes=2)
        self.assertEqual(job.stdout.readline(), "running\n")
        subprocess.run(["scancel", "--user", "root"], check=True)
        job.communicate(timeout=JOB_SECONDS)
        self.assertNotEqual(job.returncode, 0)
        self.expect_nothing_left()

    def test_missing_token_is_named(self):
        del self.environment["TANDEM_TOKEN_FILE"]
        code, _, complained = self.run_job("--", "true", nodes=2)
        self.assertNotEqual(code, 0)
        self.assertIn("TANDEM_TOKEN_FILE is not set", complained)
        self.expect_nothing_left()


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv[1]).resolve()
    DIRECTORY = enter()
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
