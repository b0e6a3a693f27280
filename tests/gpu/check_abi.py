"""Compiles abi_*.cc, which compare Tandem's own declarations with the vendors' headers, for each header that is here.

The headers come from a CUDA toolkit, from NCCL's package, or from Python packages.  Exit status 77: none is here.
"""
# SPDX-License-Identifier: Apache-2.0
import glob
import os
import pathlib
import shutil
import site
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A header of CUDA includes others of its folder; NCCL's includes some of CUDA's.
CUDA_FOLDERS = [os.environ.get("CUDA_HOME", "/nowhere") + "/include", "/usr/local/cuda/include",
                *sorted(glob.glob("/usr/local/cuda-*/include")), "/usr/include"]
PACKAGES = [folder + "/nvidia/*/include" for folder in site.getsitepackages() + [site.getusersitepackages()]]
LIMIT_SECONDS = 100


def folders_with(header, folders):
    """Return the folders that have the header, without links to the same file."""
    found = {}
    for folder in folders + [match for pattern in PACKAGES for match in sorted(glob.glob(pattern))]:
        path = pathlib.Path(folder, header)
        if path.is_file():
            found.setdefault(path.resolve(), folder)
    return list(found.values())


def compile_with(source, folders):
    """Compile a check with the first of the folders having priority; return what the compiler says, or None."""
    command = [os.environ.get("CXX", "g++"), "-std=c++17", "-fsyntax-only", "-I", str(ROOT), "-I",
               str(ROOT / "include")]
    for folder in folders:
        command += ["-isystem", folder]
    done = subprocess.run([*command, str(ROOT / "tests/gpu" / source)], capture_output=True, text=True,
                          timeout=LIMIT_SECONDS, check=False)
    return None if done.returncode == 0 else done.stderr


def main():
    """Compile each check with each header, and print what was compared."""
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        print("skipped: no C++ compiler")
        return 77
    cuda = folders_with("cuda.h", CUDA_FOLDERS)
    nccl = [folder for folder in folders_with("nccl.h", [*CUDA_FOLDERS, "/usr/local/include"])]
    runs = [("abi_cuda.cc", [folder]) for folder in cuda]
    runs += [("abi_nccl.cc", [folder, *cuda[:1]]) for folder in nccl if cuda]
    # cuBLAS's header includes some of CUDA's, which are not compared here.
    runs += [("abi_cublas.cc", [folder, *cuda[:1]]) for folder in folders_with("cublas_v2.h", CUDA_FOLDERS) if cuda]
    if not runs:
        print("skipped: no cuda.h and no nccl.h on this machine")
        return 77
    failed = 0
    for source, folders in runs:
        differences = compile_with(source, folders)
        failed += differences is not None
        print(f"{source} with {folders[0]}: {'same' if differences is None else 'DIFFERENT: ' + differences}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
