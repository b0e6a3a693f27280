#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_install.py build_dir: installs into a temporary prefix and uses it as a stranger would."""
import os
import pathlib
import subprocess
import sys
import tempfile

CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def build_with_pkg_config(_prefix, libraries, work):
    flags = run("pkg-config", "--cflags", "--libs", "tandem",
                PKG_CONFIG_PATH=str(libraries / "pkgconfig")).split()
    run("cc", "-std=c11", CONSUMER / "consumer.c", "-o", work / "by_pkg_config",
        f"-Wl,-rpath,{libraries}", *flags, *os.environ.get("LDFLAGS", "").split())
    return work / "by_pkg_config"


def build_with_cmake(prefix, _libraries, work):
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", work / "cmake", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", work / "cmake")
    return work / "cmake" / "consumer"


def main(build):
    with tempfile.TemporaryDirectory(prefix="tandem-install-") as folder:
        work = pathlib.Path(folder)
        prefix = work / "prefix"
        run("cmake", "--install", build, "--prefix", prefix)
        libraries = next(prefix.rglob("libtandem.so")).parent
        for builder in (build_with_pkg_config, build_with_cmake):
            program = builder(prefix, libraries, work)
            if run(program) != "success\n":
                sys.exit(f"{program.name} does not print the text of TDM_OK")
        for program in (prefix / "bin").glob("*"):
            if "not found" in run("ldd", program):
                sys.exit(f"{program.name}: installed, but does not find its libraries")


if __name__ == "__main__":
    main(sys.argv[1])
