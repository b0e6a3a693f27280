# SPDX-License-Identifier: Apache-2.0
"""Jobs in Python on two nodes, of which only the first has the modules of the job."""
import json
import pathlib
import shutil
import sys
import textwrap

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from two_nodes import TwoNodes  # noqa: E402

EXAMPLE = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python_job"
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


class Cluster(TwoNodes):
    """Two nodes with one GPU each, and a job in Python."""

    def __init__(self, path, **more):
        super().__init__(path, gpus=1, gpu_bytes=8 << 20, OPENBLAS_NUM_THREADS="1", **more)
        self.environment.pop("PYTHONPATH", None)
        self.folder.mkdir()
        for file in EXAMPLE.iterdir():
            if file.is_file():
                shutil.copy(file, self.folder)
        (self.folder / "whole.py").write_text(textwrap.dedent(WHOLE))

    def run(self, *settings, **more):
        """Run the job for a few steps in its folder; return (exit status, output)."""
        done = self.run_job("--out", self.path / "out", "--overwrite", f"job.python={sys.executable}",
                            "job.library=python:whole", "rollout.num_rollout=4", "job.max_restarts=0",
                            "trainer.lr=0.5", *settings, timeout=100, **more)
        return done.returncode, done.stdout + done.stderr

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
