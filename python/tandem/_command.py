# SPDX-License-Identifier: Apache-2.0
"""The command `tandem` of a wheel, which carries the program."""
import os
import pathlib
import sys


def main():
    """Replace this process by the program."""
    program = pathlib.Path(__file__).resolve().parent / "bin" / "tandem"
    # `tandem python` shall use the interpreter of the environment that the wheel is installed in.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    os.execv(program, [str(program), *sys.argv[1:]])
