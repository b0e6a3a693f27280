# SPDX-License-Identifier: Apache-2.0
"""Jobs in Python on two nodes, of which only the first has the modules of the job."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

import tandem

PACKAGE = pathlib.Path(tandem.__file__).parent.parent
PROGRAMS = PACKAGE.parent
EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python_job"
INHERITED = ("TANDEM_ADDRESS", "TANDEM_GPUS", "TANDEM_DEVICE", "RAY_ADDRESS", "PYTHONPATH")
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]
# A shell that covers the folder $0 with an empty file system and becomes the command after it.
HIDING = [*NAMESPACE, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"']
# Each rank holds the whole table, so that each node has all weights, and notes where its module is.
WHOLE = """
    import os
    import letters
    from letters import Engine as _Engine, Region, Slice, TABLE, COUNT, numpy, reward

    def _note(context, kind):
        with open(os.path.join(os.environ["NOTES"], f"{kind}-{context.engine}-{context.rank}"), "w") as file:
            file.write(__file__)

    class Trainer(letters.Trainer):
        @classmethod
        def regions(cls, context):
            return [Region("rows", TABLE.size_bytes)]

        def __init__(self, context):
            super().__init__(context)
            self.first, self.count = 0, COUNT
            _note(context, "trainer")

    class Engine(_Engine):
        def __init__(self, context):
            super().__init__(context)
            _note(context, "engine")
"""


class Cluster:
    """Two nodes with one GPU each. The second one does not see the folder "home/job", in which jobs run."""

    def __init__(self, path, **more):
        if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode != 0:
            pytest.skip("mount namespaces are not allowed")
        self.path = path
        self.folder = path / "home" / "job"
        self.folder.mkdir(parents=True)
        for name in ("tmp", "notes"):
            (path / name).mkdir()
        for file in EXAMPLE.iterdir():
            if file.is_file():
                shutil.copy(file, self.folder)
        (self.folder / "whole.py").write_text(textwrap.dedent(WHOLE))
        token = path / "token"
        token.write_bytes(os.urandom(32))
        token.chmod(0o600)
        self.environment = {name: value for name, value in os.environ.items() if name not in INHERITED}
        self.environment.update(TANDEM_TOKEN_FILE=str(token), TMPDIR=str(path / "tmp"), NOTES=str(path / "notes"),
                                OPENBLAS_NUM_THREADS="1", **more)
        self.running = []

    def __enter__(self):
        try:
            store = self.path / "redis.sock"
            self.start(["redis-server", "--port", "0", "--unixsocket", store, "--dir", self.path, "--save", ""],
                       "eady to accept")
            node = [PROGRAMS / "tandemd", "--redis", f"unix://{store}", "--listen", "127.0.0.1", "--gpus", "1",
                    "--gpu-bytes", 8 << 20, "--cpus", "8", "--name"]
            self.address = self.start([*node, "first"], "ready ").split()[2]
            self.start([*HIDING, self.folder.parent, *node, "second"], "ready ")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, words, until):
        process = subprocess.Popen([str(word) for word in words], env=self.environment, text=True, cwd=self.path,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.running.append(process)
        for line in process.stdout:
            if until in line:
                return line
        raise RuntimeError(f"{words[0]} has ended before it said {until!r}")

    def stop(self):
        for process in reversed(self.running):
            process.terminate()
            process.communicate()
        self.running = []

    def run(self, *settings, **more):
        """Run the job for a few steps in its folder; return (exit status, output)."""
        done = subprocess.run([PROGRAMS / "tandem", "run", "job.yaml", "--json", "--out", self.path / "out",
                               "--overwrite", f"job.python={sys.executable}", "job.library=python:whole",
                               "rollout.num_rollout=4", "job.max_restarts=0", "trainer.lr=0.5", *settings],
                              cwd=self.folder, env={**self.environment, "TANDEM_ADDRESS": self.address, **more},
                              text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False)
        return done.returncode, done.stdout

    def modules(self):
        """Return the folders of the modules of all ranks that have noted them: those of the driver's node first."""
        notes = [pathlib.Path(note.read_text()).parent for note in sorted((self.path / "notes").iterdir())]
        is_original = [note.is_relative_to(self.folder) for note in notes]
        return ([note for note, original in zip(notes, is_original) if original],
                [note for note, original in zip(notes, is_original) if not original])


@pytest.fixture
def cluster(tmp_path):
    with Cluster(tmp_path) as running:
        yield running


def rewards_of(output):
    """Return the rewards of a job's steps."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line["reward"] for line in lines if "step" in line]


def test_node_without_the_modules_fetches_them_and_learns_the_same(cluster):
    status, output = cluster.run("job.files=letters.py")
    assert status == 0, output
    originals, copies = cluster.modules()
    assert len(originals) == 2 and len(copies) == 2, (originals, copies)
    assert len(set(copies)) == 1 and copies[0].name == "modules" and "/content/" in str(copies[0])
    assert sorted(file.name for file in copies[0].glob("*.py")) == ["letters.py", "whole.py"]
    status, alone = cluster.run(TANDEM_ADDRESS="")
    assert status == 0 and len(rewards_of(output)) == 4 and rewards_of(alone) == rewards_of(output), alone


def test_module_that_is_not_named_is_missing_on_the_other_node_and_the_error_says_what_to_do(cluster):
    status, output = cluster.run()
    assert status != 0
    assert "No module named 'letters'" in output and "job.files" in output and "whole.py" in output, output


@pytest.mark.parametrize("preload", ("", "letters"))
def test_another_module_of_the_same_name_is_not_used(tmp_path, preload):
    """PYTHONPATH has such a module, which a fork server of the second node may have imported already."""
    other = tmp_path / "packages"
    other.mkdir()
    (other / "letters.py").write_text("IS_OF_THE_JOB = False")
    with Cluster(tmp_path, TANDEM_PYTHON_PRELOAD=preload) as cluster:
        status, output = cluster.run("job.files=letters.py", PYTHONPATH=str(other))
    assert status == 0, output


def test_package_is_fetched_as_a_folder(cluster):
    package = cluster.folder / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    shutil.move(cluster.folder / "whole.py", package / "job.py")
    (package / "data.txt").write_text("of the job")
    shutil.move(cluster.folder / "letters.py", package / "letters.py")
    text = (package / "job.py").read_text().replace("import letters\n", "from package import letters\n")
    text = text.replace("from letters", "from package.letters")
    (package / "job.py").write_text(text + textwrap.dedent("""
        with open(os.path.join(os.path.dirname(__file__), "data.txt")) as file:
            assert file.read() == "of the job"
    """))
    status, output = cluster.run("job.library=python:package.job")
    assert status == 0, output
    _, copies = cluster.modules()
    assert copies and copies[0].name == "package" and "/content/" in str(copies[0])


def test_link_out_of_the_folder_is_refused_by_name(cluster):
    (cluster.folder / "link.py").symlink_to(EXAMPLE / "letters.py")
    status, output = cluster.run("job.files=letters.py link.py")
    assert status != 0 and "link.py: a link to " in output and "outside of" in output, output
