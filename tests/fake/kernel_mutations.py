#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kernel_mutations.py BUILD_DIR [NAME …]: shows that copy_engine_test finds known mistakes in the kernels.

Builds the fake library for CUDA with one mistake after the other in kernels.cu, and runs the test with it.  Prints what
the test or the fake library said.  Exit status: 1 if a mistake was not found, or if its text is not in kernels.cu any
more.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = "colocate/device/cuda/kernels.cu"
LIMIT_SECONDS = 60
COMPILE = [os.environ.get("CC", "cc"), "-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-w", "-DFAKE_KERNELS_WATCHED"]

# A mutation: its name, what must be said, the text before it, the text, and what takes the place of the text.
RACE = "race: "
MUTATIONS = [
    ("no-barrier-after-the-lanes-are-zeroed", RACE, "together[i] = 0;\n    }\n", "    __syncthreads();\n", ""),
    ("no-barrier-before-the-lanes-are-given", RACE, "atomicAdd(&together[i], lanes[i]);\n        }\n    }\n",
     "    __syncthreads();\n", ""),
    ("lanes-of-a-block-without-an-atomic", RACE, "", "atomicAdd(&together[i], lanes[i]);", "together[i] += lanes[i];"),
    ("lanes-of-an-operation-without-an-atomic", RACE, "", "atomicAdd(&part->lanes[i], together[i]);",
     "part->lanes[i] += together[i];"),
    ("no-barrier-before-the-tree", RACE, "together[thread] = sums;\n", "    __syncthreads();\n", ""),
    ("no-barrier-in-the-tree", RACE, "together[thread + distance].high;\n        }\n", "        __syncthreads();\n", ""),
    ("lanes-of-the-tree-without-an-atomic", RACE, "", "atomicAdd(&part->lanes[2 * phase], together[thread].low);",
     "part->lanes[2 * phase] += together[thread].low;"),
    ("scale-is-reset-while-it-is-read", RACE, "unsigned own = 0;\n\n", "    __syncthreads(); ", "    "),
    ("no-barrier-after-the-scale-is-reset", RACE, "__float_as_uint(1e-10f);\n    }\n", "    __syncthreads();\n", ""),
    ("scale-is-read-without-a-barrier", RACE, "atomicMax(&largest, own);\n", "    __syncthreads();\n", ""),
    ("maximum-without-an-atomic", RACE, "", "atomicMax(&largest, own);", "if (own > largest) { largest = own; }"),
    ("maximum-is-read-beside-an-atomic", RACE, "", "atomicMax(&largest, own);",
     "if (own > largest) { atomicMax(&largest, own); }"),
    ("barrier-for-some-threads", "at different barriers", "", "float inverse = __fdiv_rn(1.0f, scale);",
     "float inverse = __fdiv_rn(1.0f, scale);\n        if (threadIdx.x != 3) { __syncthreads(); }"),
    ("two-threads-write-the-same", RACE, "word phase;\n\n",
     "    position.pair_index = (word)blockIdx.x * blockDim.x + threadIdx.x;",
     "    position.pair_index = (word)blockIdx.x * blockDim.x + threadIdx.x / 2;"),
    ("reads-of-16-bytes-anywhere", "716", "", "if (unit == PAIR_BYTES && bytes == PAIR_BYTES) {\n        ulonglong2 both = *",
     "if (bytes == PAIR_BYTES) {\n        ulonglong2 both = *"),
    ("writes-of-16-bytes-anywhere", "716", "", "if (unit == PAIR_BYTES && bytes == PAIR_BYTES) {\n        ulonglong2 both;",
     "if (bytes == PAIR_BYTES) {\n        ulonglong2 both;"),
]


def mutate(source, before, text, other):
    """Return the source with the mistake, or None if the place of the mistake is not there once."""
    return source.replace(before + text, before + other) if source.count(before + text) == 1 else None


def build_fake(folder, common, library):
    """Link the fake library with the kernels in `folder`."""
    kernels = folder / "cuda_kernels.o"
    subprocess.run([*COMPILE, "-fsanitize=thread", "-I", folder, "-I", ROOT, "-I", ROOT / "include", "-c",
                    ROOT / "tests/fake/cuda_kernels.c", "-o", kernels], check=True)
    subprocess.run([COMPILE[0], "-shared", "-o", library, kernels, *common, "-lpthread", "-ldl", "-lm"], check=True)


def build_common(folder):
    """Compile the sources of the fake library that have no kernels of Tandem's."""
    objects = []
    for source in sorted((ROOT / "tests/fake").glob("cuda*.c")):
        if source.name != "cuda_kernels.c":
            objects.append(folder / (source.stem + ".o"))
            subprocess.run([*COMPILE, "-I", ROOT, "-I", ROOT / "include", "-c", source, "-o", objects[-1]], check=True)
    return objects


def run_test(build, library):
    """Run the test of the kernels; return its exit status and what it said."""
    environment = {**os.environ, "TANDEM_TEST_FAKE_CUDA": str(library)}
    done = subprocess.run([build / "tests/copy_engine_test"], env=environment, capture_output=True, text=True,
                          errors="replace", timeout=LIMIT_SECONDS, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    """Try each mistake, after the kernels without one."""
    build = pathlib.Path(sys.argv[1]).resolve()
    names = sys.argv[2:]
    source = (ROOT / KERNELS).read_text(encoding="utf-8")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        library = folder / "cuda_fake.so"
        (folder / KERNELS).parent.mkdir(parents=True)
        common = build_common(folder)
        for mutation, expected, before, text, other in [("no-mistake", "", "", "", ""), *MUTATIONS]:
            mutated = mutate(source, before, text, other) if text else source
            if names and mutation not in names:
                continue
            if mutated is None:
                print(f"{mutation}: its text is not in {KERNELS} once")
                failed += 1
                continue
            (folder / KERNELS).write_text(mutated, encoding="utf-8")
            build_fake(folder, common, library)
            status, said = run_test(build, library)
            found = (status != 0 and expected in said) if text else status == 0
            lines = re.findall(rf"^.*{re.escape(expected)}.*$", said, re.MULTILINE) if text else []
            print(f"{mutation}: {'ok' if found else 'NOT FOUND'}: exit status {status}: {lines[0] if lines else ''}")
            failed += not found
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
