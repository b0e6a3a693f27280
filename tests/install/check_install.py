#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_install.py build_dir: installs into a temporary prefix and uses it as a new user does.

The examples are copied out of the source tree and compiled against the prefix: as C11, and a
program in C++17 and C++20; linked to the shared library and to the static one.  Some of them
then run.  The shared library leads to tandemd; a static program finds it in PATH.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CONSUMER = HERE / "consumer"
EXAMPLES = HERE.parents[1] / "examples"
COMPARE = EXAMPLES / "compare_output.py"
# These start a node, and use classes of their own and of the library.
RUN = ("01_hello_actor", "18_queue")


def run(*command, **environment):
    environment = {**os.environ, **environment}
    environment.pop("TANDEM_DAEMON", None)
    done = subprocess.run([str(word) for word in command], env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"failed ({done.returncode}): {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def flags_of(libraries, linking):
    """What pkg-config says; libtandem.so wins over libtandem.a unless the file is named."""
    words = ["--static"] if linking == "static" else []
    flags = run("pkg-config", "--cflags", "--libs", *words, "tandem",
                PKG_CONFIG_PATH=str(libraries / "pkgconfig")).split()
    if linking == "static":
        return ["-l:libtandem.a" if flag == "-ltandem" else flag for flag in flags]
    return [f"-Wl,-rpath,{libraries}", *flags]


def compile_one(compiler, sources, program, flags):
    run(*compiler, "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", *sources, "-o",
        program, *flags, *os.environ.get("LDFLAGS", "").split())
    return program


def environment_of(prefix, linking):
    path = os.environ["PATH"]
    return {"PATH": f"{prefix}/bin:{path}"} if linking == "static" else {}


def check_hello(program, prints, **environment):
    if run(program, **environment) != prints:
        sys.exit(f"{program} does not print {prints!r}")


def check_consumer(prefix, libraries, work):
    by_pkg_config = compile_one(["cc", "-std=c11"], [CONSUMER / "consumer.c"], work / "by_pkg_config",
                                flags_of(libraries, "shared"))
    run("cmake", "-G", "Ninja", "-S", CONSUMER, "-B", work / "cmake", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", work / "cmake")
    for program in (by_pkg_config, work / "cmake" / "consumer"):
        check_hello(program, "success\n")


def check_cplusplus(prefix, libraries, work, linking):
    flags = flags_of(libraries, linking)
    for standard in ("c++17", "c++20"):
        program = compile_one(["c++", f"-std={standard}"], [CONSUMER / "hello.cpp"],
                              work / f"{linking}-{standard}", flags)
        check_hello(program, "the counter stands at 6\n", **environment_of(prefix, linking))


def check_examples(prefix, libraries, work, linking):
    flags = flags_of(libraries, linking)
    for folder in sorted((work / "examples").glob("[0-9]*_*")):
        sources = [source for source in folder.glob("*.c") if not source.name.endswith("_library.c")]
        program = compile_one(["cc", "-std=c11", "-D_GNU_SOURCE"], sources,
                              work / f"{linking}-{folder.name}", [*flags, "-lpthread"])
        if folder.name in RUN:
            run(sys.executable, COMPARE, folder / "expected.txt", program,
                **environment_of(prefix, linking))


def check_private_node(prefix, build):
    """Only tandem and tandemd use internal functions; others link the public ones."""
    inside = {prefix / "bin" / "tandem", prefix / "bin" / "tandemd"}
    places = [*prefix.rglob("*"), *pathlib.Path(build, "examples").rglob("*")]
    programs = [path for path in places if path.is_file() and path.open("rb").read(4) == b"\x7fELF"]
    for program in programs:
        uses = "@TANDEM_PRIVATE" in run("nm", "-D", "--undefined-only", "--with-symbol-versions", program)
        if program.suffix != ".o" and uses != (program in inside):
            sys.exit(f"{program} {'uses' if uses else 'does not use'} the version node TANDEM_PRIVATE")


def check_manual(prefix):
    """Every command has a man page that says what --help says."""
    pages = prefix / "share" / "man" / "man1"
    commands = re.findall(r"^  (\w+) +\S", run(prefix / "bin" / "tandem", "--help"), re.M)
    for page in ["tandem", "tandemd", *(f"tandem-{command}" for command in commands)]:
        text = (pages / f"{page}.1").read_text(encoding="utf-8").replace("\\-", "-")
        for line in run(prefix / "bin" / page.split("-")[0], *page.split("-")[1:], "--help").splitlines():
            if line.split("usage: ")[-1].strip() not in text:
                sys.exit(f"man page {page}.1 lacks a line of --help: {line}")


def check_completion(prefix):
    """bash completes commands, options of a command, and the words that a command takes."""
    script = prefix / "share" / "bash-completion" / "completions" / "tandem"
    for words, wanted in ((("tandem", "ti"), "timeline"), (("tandem", "run", "--re"), "--resume"),
                          (("tandem", "list", "obj"), "objects"), (("tandem", "help", "pl"), "plan")):
        said = run("bash", "-c", f'source "{script}"; COMP_WORDS=({" ".join(words)}); '
                   f'COMP_CWORD={len(words) - 1}; _tandem; echo "${{COMPREPLY[@]}}"')
        if said != wanted + "\n":
            sys.exit(f"completing {' '.join(words)} gives {said!r}, not {wanted!r}")
    if not (prefix / "share" / "zsh" / "site-functions" / "_tandem").is_file():
        sys.exit("the completion for zsh is not installed")


def main(build):
    with tempfile.TemporaryDirectory(prefix="tandem-install-") as folder:
        work = pathlib.Path(folder)
        prefix = work / "prefix"
        shutil.copytree(EXAMPLES, work / "examples")
        run("cmake", "--install", build, "--prefix", prefix)
        libraries = next(prefix.rglob("libtandem.so")).parent
        check_consumer(prefix, libraries, work)
        for linking in ("shared", "static"):
            check_cplusplus(prefix, libraries, work, linking)
            check_examples(prefix, libraries, work, linking)
        check_private_node(prefix, build)
        check_manual(prefix)
        check_completion(prefix)
        for program in (prefix / "bin").glob("*"):
            if "not found" in run("ldd", program):
                sys.exit(f"{program.name}: installed, but does not find its libraries")


if __name__ == "__main__":
    main(sys.argv[1])
