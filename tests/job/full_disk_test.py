#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""full_disk_test.py - a job whose folder for temporary files is full says so. The folder is a small file system that is
mounted in a namespace of this test's own.
"""
import os
import re
import subprocess
import sys
import time

from support import ENDLESS, finish, main, read_until, require

BYTES = 8 << 20  # Size of the file system.
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount"]


class SmallFileSystem:
    """A file system in place of the sandbox's folder for temporary files."""

    def __init__(self, sandbox):
        self.path = sandbox.tmp

    def __enter__(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={BYTES}", "none", str(self.path)], check=True)
        return self

    def fill(self):
        with open(self.path / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass  # It is full.

    def __exit__(self, *_):
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


def require_named(sandbox, process, within_s):
    begin = time.monotonic()
    code, _, err = finish(process)
    took_s = time.monotonic() - begin
    said = rf"the file system of {sandbox.tmp} is full \(\d+ KiB are left\), which may be the cause"
    require(code == 1 and re.search(said, err) and "No space left on device" in err, f"exit code {code}: {err}")
    require("restart" not in err and took_s < within_s * sandbox.slow, f"told after {took_s:.1f} s: {err}")


def full_before_the_job_begins(sandbox):
    with SmallFileSystem(sandbox) as small:
        small.fill()
        require_named(sandbox, sandbox.start("--json", "--out", "out", *ENDLESS), 5)


def filled_while_the_job_runs(sandbox):
    with SmallFileSystem(sandbox) as small:
        process = sandbox.start("--json", "--out", "out", *ENDLESS, "update.timeout_ms=2000")
        read_until(process, "step", 1)
        small.fill()
        require_named(sandbox, process, 20)


if __name__ == "__main__":
    if "TANDEM_TEST_NAMESPACE" not in os.environ:
        if subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode != 0:
            print("skipped: mount namespaces are forbidden")
            sys.exit(77)
        os.environ["TANDEM_TEST_NAMESPACE"] = "1"
        os.execvp(UNSHARE[0], [*UNSHARE, sys.executable, *sys.argv])
    sys.exit(main([full_before_the_job_begins, filled_while_the_job_runs]))
