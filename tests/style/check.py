#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py CONCERN [build_dir]: prints every breach of one rule of style; fails if there is any.

Each function below is a concern; it yields one line of text for each breach.
"""
import ast
import pathlib
import re
import subprocess
import sys

from sources import EVERYTHING, LIBRARY, ROOT, files, lines

HERE = pathlib.Path(__file__).resolve().parent
FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 60
RAY_DIFFERENCES_MAX = 15
NOTE_LINES_MIN = 200
BANNED = {
    "strcpy": "snprintf", "strcat": "snprintf", "sprintf": "snprintf", "vsprintf": "vsnprintf",
    "gets": "fgets", "atoi": "strtol", "atol": "strtol", "strtok": "strtok_r",
    "rand": "a generator with a seed of its own", "srand": "a generator with a seed of its own",
    "time": "tdm__clock_ms", "system": "tdm__spawn", "popen": "tdm__spawn",
}
COMMENT_OR_STRING = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def code_lines(path):
    """The lines with comments and strings blanked, so that only code is left to match."""
    def blank(match):
        return "\n" * match[0].count("\n") or " "
    return COMMENT_OR_STRING.sub(blank, "\n".join(lines(path))).split("\n")


def run(*command):
    return subprocess.run([str(word) for word in command], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


def check_format():
    """Every file is as clang-format leaves it."""
    done = run("clang-format-14", "--dry-run", "-Werror", *files())
    if done.returncode != 0:
        yield done.stdout + "remedy: clang-format-14 -i FILE"


def check_headers():
    """Every public header compiles alone, as C11 and as C++17, also when included twice."""
    # The enum is there because a C file must declare something.
    for header in files(["include"], [".h"]):
        text = f"#include <{header.relative_to('include')}>\n" * 2 + "enum { SOMETHING };\n"
        for compiler, language, standard in (("cc", "c", "c11"), ("c++", "c++", "c++17")):
            done = subprocess.run(
                [compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic",
                 "-Werror", "-fsyntax-only", "-Iinclude", "-"],
                cwd=ROOT, input=text, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                yield f"{header} is not {standard}:\n{done.stderr}"


def check_banned():
    """No calls that have a better replacement."""
    call = re.compile(r"(?<![\w.>])(" + "|".join(BANNED) + r")\s*\(")
    for path in files():
        for number, line in enumerate(code_lines(path), 1):
            for found in call.finditer(line):
                yield f"{path}:{number}: {found[1]}() is banned: use {BANNED[found[1]]}"


def lines_without_comments(text):
    """Lists the lines that are neither blank nor part of a comment that has lines of its own."""
    in_comment = False
    for line in text:
        stripped = line.strip()
        if not in_comment and stripped and not stripped.startswith("/*"):
            yield line
        in_comment = "*/" not in line if in_comment or stripped.startswith("/*") else False


def check_length():
    """Files and functions are short.  In the project's format a body is a { to a } in column 0.

    Comments and blank lines of a file are not counted, so that nobody saves on them.
    """
    for path in files():
        text = lines(path)
        code_count = len(list(lines_without_comments(text)))
        if code_count > FILE_LINES_MAX:
            yield f"{path}: {code_count} lines of code, at most {FILE_LINES_MAX}"
        begun = None
        for number, line in enumerate(text, 1):
            if line == "{":
                begun = number
            elif line == "}" and begun is not None:
                excused = any("NOLINT" in above and "function-size" in above
                              for above in text[max(0, begun - 8):begun])
                if number - begun - 1 > FUNCTION_LINES_MAX and not excused:
                    yield (f"{path}:{begun}: a function of {number - begun - 1} lines, "
                           f"at most {FUNCTION_LINES_MAX}")
                begun = None


def check_preamble():
    """The first line says what the file is, the second its licence; headers have a guard."""
    for path in files(suffixes=(".c", ".h", ".def")):
        text = lines(path) + ["", ""]
        first = "\n".join(text[:8]).split("*/")[0]
        if not first.startswith(f"/* {path.name} - "):
            yield f"{path}:1: must begin with /* {path.name} - what it is. */"
        if not any(line == "/* SPDX-License-Identifier: Apache-2.0 */" for line in text[:10]):
            yield f"{path}: has no SPDX line after its first comment"
        # A program of its own has names of its own: COLOCATED_RL_MODEL_H.
        whose = path.parts[1].upper() if path.parts[0] == "examples" else "TANDEM|TDM"
        if path.suffix == ".h" and not any(re.match(rf"#ifndef ({whose})_\w+_H$", line) for line in text):
            yield f"{path}: has no guard TDM_…_H"


def retired_names():
    """Compiles the last column of the glossary's tables to one expression."""
    names = []
    for line in lines(pathlib.Path("docs/glossary.md")):
        if line.startswith("|"):
            names += re.findall(r"`(\w+\*?)`", line.split("|")[-2] if line.count("|") == 4 else "")
    return re.compile(r"(?<!\w)(?:" + "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names) + r")(?!\w)")


def check_retired():
    """No name that the glossary retires comes back."""
    retired = retired_names()
    documents = [path for path in map(pathlib.Path, run("git", "ls-files", "*.md").stdout.split())
                 if path.name != "glossary.md" and path.parts[:2] not in
                 (("docs", "measurements"), ("docs", "decisions"))]
    for path in [*files(suffixes=(".c", ".h", ".cu", ".def")), *documents]:
        for number, line in enumerate(lines(path), 1):
            for found in retired.finditer(line):
                yield f"{path}:{number}: {found[0]} is retired: docs/glossary.md has the new name"


def check_notes():
    """A source of more than NOTE_LINES_MIN lines begins with a design note of at least three lines."""
    for path in files(LIBRARY, [".c"]):
        text = lines(path)
        if len(text) > NOTE_LINES_MIN:
            head = "\n".join(text[:80])
            notes = [note for note in re.findall(r"^/\*.*?\*/", head, re.M | re.S)[1:] if note.count("\n") >= 2
                     and "SPDX" not in note]
            if not notes:
                yield f"{path}: {len(text)} lines, but no design note at its beginning"


def check_mentions():
    """Nothing left to do is left in the text, and no path climbs."""
    for path in files():
        for number, line in enumerate(lines(path), 1):
            if re.search(r"\b(TODO|FIXME|XXX)\b", line):
                yield f"{path}:{number}: a note of unfinished work: finish it or open an issue"
            if re.match(r'\s*#\s*include\s*["<](.*/)?\.\./', line):
                yield f"{path}:{number}: includes are written from the root, without ../"


def test_names(path):
    """The test of a/b/c.c is c_test.c or b_c_test.c; that of a/c/c.c also a_c_test.c."""
    folders = [folder for folder in path.parent.parts if folder != path.stem]
    return {f"{path.stem}_test.c", f"{path.parent.name}_{path.stem}_test.c", f"{folders[-1]}_{path.stem}_test.c"}


def check_tested():
    """Every source of the library has its test; what has none is in untested.txt, with why."""
    tests = {path.name for path in files(["tests"], [".c"])}
    excused = {}
    for line in (HERE / "untested.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            path, _, reason = line.partition(":")
            excused[path.strip()] = reason.strip()
    sources = {path.as_posix(): test_names(path) for path in files(LIBRARY, [".c"])}
    for path, names in sources.items():
        if not names & tests and path not in excused:
            yield f"{path}: has no tests/**/{' or '.join(sorted(names))}"
    for path, reason in excused.items():
        if path not in sources:
            yield f"untested.txt: {path} does not exist: remove the line"
        elif sources[path] & tests:
            yield f"untested.txt: {path} has its test now: remove the line"
        if not reason:
            yield f"untested.txt: {path}: say why it has no test"


def check_nolint():
    """Exceptions to clang-tidy are few and name the check; the number may only be lowered."""
    allowed = int((HERE / "nolint.txt").read_text(encoding="utf-8").split()[0])
    found = [f"{path}:{number}: {line.strip()}" for path in files()
             for number, line in enumerate(lines(path), 1) if "NOLINT" in line]
    if len(found) > allowed:
        yield f"{len(found)} NOLINT, nolint.txt allows {allowed}:\n" + "\n".join(found)
    for place in found:
        if not re.search(r"NOLINT\w*\([\w.,-]+\)", place) and "NOLINTEND" not in place:
            yield f"{place}: name the check that is silenced"


def check_positional():
    """Messages are read by field tables, not by position; positional.txt lists the reads that are left."""
    position = re.compile(r"\btdm_value_at\((?:[^();]|\([^();]*\))*,\s*\d+\)|(?<!tdm_status )\btdm_(?:call_)?unpack\(")
    allowed = {}
    for line in (HERE / "positional.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            path, count, reason = (part.strip() for part in line.split(":", 2))
            allowed[path] = int(count)
            if not reason:
                yield f"positional.txt: {path}: say why it reads by position"
    sources = [path for path in files((*LIBRARY, "cli"), [".c"]) if path.parts[:2] != ("runtime", "wire")]
    for path in sources:
        found = len(position.findall("\n".join(code_lines(path))))
        listed = allowed.pop(path.as_posix(), 0)
        if found > listed:
            yield (f"{path}: {found} reads of values by position, positional.txt allows {listed}: declare a message "
                   "in runtime/messages")
        elif found < listed:
            yield f"positional.txt: {path} has {found} reads by position: lower the number, or remove the line"
    for path in allowed:
        yield f"positional.txt: {path} does not exist: remove the line"


def check_packages():
    """The demo installs what it builds and runs with, and none of the tools for tests and style."""
    listed = {purpose: set(run("scripts/setup", "--list", purpose).stdout.split())
              for purpose in ("build", "test", "style")}
    if "cmake" not in listed["build"] or "redis-server" not in listed["build"]:
        yield "scripts/packages.txt: [build] lacks cmake or redis-server"
    for tool in ("clang-tidy-14", "clang-format-14", "gcovr", "libcmocka-dev", "clang-14"):
        if tool in listed["build"] or tool not in listed["test"] | listed["style"]:
            yield f"scripts/packages.txt: {tool} belongs to [test] or [style]"
    if "scripts/setup build\n" not in (ROOT / "scripts" / "demo").read_text(encoding="utf-8"):
        yield "scripts/demo: does not ask for the packages of [build] alone"


def check_links():
    """Every relative link of a page leads to a file or folder that is there."""
    pages = [*files(("docs", *EVERYTHING), [".md"]), *(path.relative_to(ROOT) for path in ROOT.glob("*.md"))]
    for path in pages:
        for number, line in enumerate(lines(path), 1):
            for target in re.findall(r"\]\(([^)#\s]+)", line):
                if "://" not in target and not (ROOT / path.parent / target).exists():
                    yield f"{path}:{number}: the link to {target} leads nowhere"


def ray_rows(text):
    """(line number, verdict, the tests named) of each row of docs/ray.md."""
    for number, line in enumerate(text, 1):
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)][1:-1]
        if len(cells) == 4 and cells[3] != "shown by" and not set(cells[2]) <= set("-"):
            yield number, cells[2], re.findall(r"`([\w/-]+\.(?:c|py)): (\w+)`", cells[3])


def check_ray_in_python(page):
    """The page has a row for each name of the suite in Python, and the same differences as the suite, at most 15."""
    suite = pathlib.Path("python/tests/ray")
    tree = ast.parse((ROOT / suite / "api_coverage.py").read_text(encoding="utf-8"))
    names = next(ast.literal_eval(node.value) for node in tree.body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "NAMES")
    text = lines(page)
    first_cells = {line.split("|")[1].replace("`", "").strip() for line in text if line.startswith("| ")}
    for name in (name for group in names.values() for name in group):
        if name not in first_cells:
            yield f"{page} has no row for {name}"
    listed = [line.partition(" | ")[::2] for line in lines(suite / "differences.txt")
              if line and not line.startswith("#")]
    shown = re.findall(r"^\| `(test_\w+\.py: [^`]+)` \| (.*) \|$", "\n".join(text), re.M)
    for test, reason in sorted(set(listed) ^ set(shown)):
        yield f"{page} and {suite}/differences.txt differ: {test}, {reason}"
    for test, reason in listed:
        file, _, name = test.partition(": ")
        if not re.search(rf"^def {re.escape(name.partition('[')[0])}\(", "\n".join(lines(suite / file)), re.M):
            yield f"{suite}/differences.txt: {file} has no test {name}"
        if len(reason) < 20:
            yield f"{suite}/differences.txt: {test} has no reason"
    if len(listed) > RAY_DIFFERENCES_MAX:
        yield f"{suite}/differences.txt: {len(listed)} differences, at most {RAY_DIFFERENCES_MAX} are allowed"


def check_ray():
    """docs/ray.md names a test for what it says is there, and has a row for each test of its suite."""
    suite = pathlib.Path("tests/conformance/actors")
    suite_in_python = pathlib.Path("python/tests/ray")
    page = "docs/ray.md"
    promised = set()
    yield from check_ray_in_python(page)
    for number, verdict, shown in ray_rows(lines(page)):
        if verdict not in ("same", "better", "not yet"):
            yield f"{page}:{number}: \"{verdict}\" is neither same, better nor not yet"
        elif (verdict == "not yet") == bool(shown):
            yield f"{page}:{number}: same and better are shown by a test, not yet by none"
        for file, test in shown:
            if file.endswith(".py"):
                path = (suite_in_python if "/" not in file else pathlib.Path("python/tests")) / file
                head = f"def {test}("
            else:
                path = (suite if "/" not in file else pathlib.Path("tests")) / file
                head = f"static void {test}(void **state)"
            promised.add((path, test))
            if not (ROOT / path).exists() or not any(line.startswith(head) for line in lines(path)):
                yield f"{page}:{number}: {path} has no test {test}"
    for path in files([suite], [".c"]):
        for test in re.findall(r"^static void (\w+)\(void \*\*state\)$", "\n".join(lines(path)), re.M):
            if (path, test) not in promised:
                yield f"{path}: {page} has no row for {test}"


def names_a_test(path, test):
    """Tells whether a file of tests in C or Python has a test of this name."""
    if not (ROOT / path).exists():
        return False
    text = "\n".join(lines(path))
    pattern = rf"^ *def {test}\(" if str(path).endswith(".py") else \
        rf"^static void {test}\(|\bcmocka_unit_test\w*\({test}\b"
    return re.search(pattern, text, re.M) is not None


def check_frameworks():
    """docs/weights-from-frameworks.md names an existing test for what it says is there, and none for the rest."""
    page = pathlib.Path("docs/weights-from-frameworks.md")
    for number, verdict, shown in ray_rows(lines(page)):
        if verdict not in ("there", "in part", "not there"):
            yield f"{page}:{number}: \"{verdict}\" is neither there, in part nor not there"
        elif (verdict == "not there") == bool(shown):
            yield f"{page}:{number}: what is there is shown by a test, what is not there by none"
        for file, test in shown:
            if not names_a_test(pathlib.Path(file), test):
                yield f"{page}:{number}: {file} has no test {test}"


def check_security():
    """docs/security.md names existing tests, at least one for each promise."""
    page = pathlib.Path("docs/security.md")
    for number, line in enumerate(lines(page), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) != 3 or cells[0] == "promise" or set(cells[0]) == {"-"}:
            continue
        shown = re.findall(r"`(tests/[\w/]+\.(?:c|py)):(\w+)`", cells[2])
        if not shown:
            yield f"{page}:{number}: no test shows this promise"
        for file, test in shown:
            if not names_a_test(pathlib.Path(file), test):
                yield f"{page}:{number}: {file} has no test {test}"


def public_functions():
    """The functions that the public headers mark TDM_API."""
    names = set()
    for header in files(["include"], [".h"]):
        text = re.sub(r"/\*.*?\*/", "", "\n".join(lines(header)), flags=re.S)
        names.update(found[1] for found in re.finditer(r"TDM_API[^;(]*?\b(tdm_\w+)\(", text))
    return names


def check_nulls():
    """No public declaration promises that a pointer is not NULL, and every public function with a
    pointer argument is called with NULL by tests/conformance/null_arguments_test.c."""
    for header in files(["include"], [".h"]):
        for number, line in enumerate(code_lines(header), 1):
            if "nonnull" in line:
                yield f"{header}:{number}: nonnull lets compilers remove the check for NULL"
        text = " ".join(code_lines(header))
        test = "\n".join(lines("tests/conformance/null_arguments_test.c"))
        for found in re.finditer(r"TDM_API[^;(]*?\b(tdm_\w+)\(([^;]*?)\);", text):
            takes_pointer = "*" in found[2] or "_fn" in found[2]
            if takes_pointer and not re.search(rf"\b{found[1]}\b", test):
                yield f"{header}: tests/conformance/null_arguments_test.c does not call {found[1]}() with NULL"


def check_exports(build):
    """The public version node of libtandem.so is what the headers declare, and libtandem.a gives
    no other names to a link than those of Tandem."""
    nodes = {}
    for line in run("nm", "-D", "--defined-only", "--with-symbol-versions",
                    pathlib.Path(build) / "libtandem.so").stdout.splitlines():
        name, _, node = line.split()[-1].partition("@@")
        if node and name != node:
            nodes.setdefault(node, set()).add(name)
    headers = public_functions()
    public = nodes.pop("TANDEM_0.1", set())
    private = nodes.pop("TANDEM_PRIVATE", set())
    for name in sorted(headers - public):
        yield f"{name} is declared in include/tandem and not in TANDEM_0.1: add it to cmake/tandem.map"
    for name in sorted(public - headers):
        yield f"{name} is in TANDEM_0.1, but no public header declares it"
    for name in sorted(name for name in private if not name.startswith("tdm__")):
        yield f"{name} is in TANDEM_PRIVATE: name it tdm__"
    for node, names in nodes.items():
        yield f"libtandem.so has another version node {node}: {sorted(names)}"
    symbol = re.compile(r"^[0-9a-f]+ [A-TV-Z] (\S+)$")
    for line in run("nm", "-g", "--defined-only", pathlib.Path(build) / "libtandem.a").stdout.splitlines():
        found = symbol.match(line)
        if found and not found[1].startswith("tdm_"):
            yield f"libtandem.a gives the name {found[1]}: make it static or name it tdm__"
        elif found and found[1] == "tdm_job_library":
            yield "libtandem.a gives tdm_job_library: only job libraries may"


def check_programs(build):
    """Programs that the scripts run from build/release are targets of CMake, or lie in a folder of targets."""
    ninja = (pathlib.Path(build) / "build.ninja").read_text(encoding="utf-8")
    targets = set()
    for outputs in re.findall(r"^build ((?:[^:\n$]|\$.)+):", ninja, re.M):
        for output in outputs.replace("|", " ").split():
            targets.update([output] + [str(folder) for folder in pathlib.PurePosixPath(output).parents])
    for script in sorted((ROOT / "scripts").iterdir()):
        for number, line in enumerate(lines(script) if script.is_file() else [], 1):
            for name in re.findall(r"\bbuild/release/([\w./-]*\w)", line):
                if name not in targets and name not in ("build.log", "test.log"):
                    yield f"scripts/{script.name}:{number}: build/release/{name} is no target of CMake"


def main(concern, *arguments):
    breaches = list(globals()[f"check_{concern}"](*arguments))
    print("\n".join(breaches) or f"{concern}: nothing to say")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
