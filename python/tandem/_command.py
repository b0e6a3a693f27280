# SPDX-License-Identifier: Apache-2.0
"""The commands `tandem` and `tandemd` of a wheel, which carries the programs."""
import os
import pathlib
import sys


def _execute(name):
    """Replace this process by a program of the wheel."""
    program = pathlib.Path(__file__).resolve().parent / "bin" / name
    # `tandem python` shall use the interpreter of the environment that the wheel is installed in.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    os.execv(program, [str(program), *sys.argv[1:]])


def tandem():
    """Run `tandem`."""
    _execute("tandem")


def tandemd():
    """Run `tandemd`, the daemon of a node."""
    _execute("tandemd")
