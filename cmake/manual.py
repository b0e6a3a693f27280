#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""manual.py TANDEM TANDEMD VERSION FOLDER: writes man pages and shell completions to FOLDER.

Everything comes from the programs' own --help, so that the pages cannot differ from it:
man/tandem.1, man/tandem-COMMAND.1, man/tandemd.1, bash/tandem, bash/tandemd, zsh/_tandem.
"""
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
USAGE = re.compile(r"usage:\s+(.*?)\n(?=\n|  --|\Z)", re.S)


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], stdout=subprocess.PIPE, text=True,
                          check=True).stdout


def commands_of(text):
    """(name, summary) of each line of the list of commands."""
    return re.findall(r"^  ([\w-]+) +(\S.*)$", text, re.M)


def roff(text):
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in lines)


def man_page(name, summary, text, version, see_also):
    usage = USAGE.search(text)
    synopsis = usage[1] if usage else name
    body = (text[:usage.start()] + text[usage.end():]) if usage else text
    return "\n".join([
        f'.TH {name.upper()} 1 "" "Tandem {version}" "Tandem"',
        ".SH NAME", f"{roff(name)} \\- {roff(summary)}",
        ".SH SYNOPSIS", ".nf", roff(synopsis.rstrip()), ".fi",
        ".SH DESCRIPTION", ".nf", roff(body.strip("\n")), ".fi",
        ".SH SEE ALSO", ",\n".join(f"\\fB{roff(page)}\\fR(1)" for page in see_also), ""])


def options_of(text):
    return sorted({*OPTION.findall(text), "--help"})


def bash_tandem(commands, helps):
    cases = "\n".join(f'        {name}) words="{" ".join(completions_of(helps[name]))}" ;;'
                      for name, _ in commands)
    names = " ".join(name for name, _ in commands)
    return f"""# bash completion of tandem; made from tandem --help.
_tandem()
{{
    local current=${{COMP_WORDS[COMP_CWORD]}} words=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "{names} help --help --version" -- "$current"))
        return
    fi
    case ${{COMP_WORDS[1]}} in
        help) words="{names}" ;;
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _tandem tandem
"""


def bash_tandemd(text):
    return f"""# bash completion of tandemd; made from tandemd --help.
_tandemd()
{{
    local current=${{COMP_WORDS[COMP_CWORD]}}
    COMPREPLY=($(compgen -W "{' '.join(options_of(text))}" -- "$current"))
    [ ${{#COMPREPLY[@]}} -gt 0 ] || COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _tandemd tandemd
"""


def completions_of(text):
    """The options of a command, and the words that its usage offers: actors|calls|…"""
    usage = USAGE.search(text)[1]
    choices = re.findall(r"(?<![\w-])[a-z]+(?:\|[a-z]+)+", usage)
    return [word for choice in choices for word in choice.split("|")] + options_of(text)


def zsh_tandem(commands, helps, daemon_help):
    def quoted(text):
        return text.replace("'", "'\\''").replace(":", "\\:")

    described = "\n".join(f"        '{name}:{quoted(summary)}'" for name, summary in commands)
    cases = "\n".join(f"        {name}) compadd -- {' '.join(completions_of(helps[name]))} ;;"
                      for name, _ in commands)
    return f"""#compdef tandem tandemd
# zsh completion of tandem and tandemd; made from their --help.
local -a commands
if [[ $service == tandemd ]]; then
    compadd -- {' '.join(options_of(daemon_help))}
    _files
elif (( CURRENT == 2 )); then
    commands=(
{described}
    )
    _describe command commands
else
    case ${{words[2]}} in
{cases}
    esac
    _files
fi
"""


def write(folder, files):
    for path, text in files.items():
        target = pathlib.Path(folder) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def main(tandem, tandemd, version, folder):
    text = help_of(tandem)
    commands = commands_of(text)
    helps = {name: help_of(tandem, name) for name, _ in commands}
    daemon_help = help_of(tandemd)
    files = {
        "man/tandem.1": man_page("tandem", "run and watch trainer and rollout actors", text, version,
                                 ["tandemd", *(f"tandem-{name}" for name, _ in commands)]),
        "man/tandemd.1": man_page("tandemd", "the daemon of one node", daemon_help, version, ["tandem"]),
        "bash/tandem": bash_tandem(commands, helps),
        "bash/tandemd": bash_tandemd(daemon_help),
        "zsh/_tandem": zsh_tandem(commands, helps, daemon_help),
    }
    for name, summary in commands:
        files[f"man/tandem-{name}.1"] = man_page(f"tandem-{name}", summary, helps[name], version,
                                                 ["tandem", "tandemd"])
    write(folder, files)


if __name__ == "__main__":
    main(*sys.argv[1:])
