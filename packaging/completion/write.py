"""Writes the completions of all commands for bash and zsh, beside this file, from the parsers of their command lines.

    .venv/bin/python packaging/completion/write.py

They are kept in the repository, because a build of the packages has none of the libraries that the commands import.
"""

from __future__ import annotations

import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1]))

from ap_agent.commands import agent_cli, limiter_cli  # noqa: E402  the path comes first
from multipath.__main__ import parser as mpget_parser  # noqa: E402
from scionlab_bw.__main__ import parser as client_parser  # noqa: E402

PARSERS = {
    "scionlab-bw-agent": agent_cli.parser,
    "scionlab-bw-limiter": limiter_cli.parser,
    "scionlab-bw": client_parser,
    "mpget": mpget_parser,
}
_HEAD = "# Written by packaging/completion/write.py from the command line's parser; do not edit."


class Place(NamedTuple):
    """After these words of a command line: what may follow, with what it does."""

    words: str
    offers: Mapping[str, str]


def places(parser: ArgumentParser, words: str = "") -> Iterator[Place]:
    """The program first, then its commands, and theirs. What has no help is for no person."""
    offers: dict[str, str] = {}
    below: list[tuple[str, ArgumentParser]] = []
    for action in parser._actions:
        if isinstance(action.choices, dict):
            helps = {one.dest: one.help or "" for one in action._get_subactions()}
            offers |= helps
            below += [(name, one) for name, one in action.choices.items() if name in helps]
        elif action.option_strings and action.help != SUPPRESS:
            offers[action.option_strings[-1]] = action.help or ""
        elif action.choices:
            offers |= dict.fromkeys(map(str, action.choices), action.help or "")
    yield Place(words, offers)
    for name, one in below:
        yield from places(one, f"{words} {name}")


def valued(parser: ArgumentParser) -> list[str]:
    """Options behind which a value stands: there the shell completes names of files."""
    found: set[str] = set()
    for action in parser._actions:
        if isinstance(action.choices, dict):
            found.update(*(valued(one) for one in action.choices.values()))
        elif action.option_strings and action.nargs != 0:
            found.update(action.option_strings)
    return sorted(found)


def bash(program: str, parser: ArgumentParser) -> str:
    found = list(places(parser))
    commands = "|".join(f'"{place.words}"' for place in found[1:])
    name = "_" + program.replace("-", "_")
    cases = [f"        \"{place.words}\") offers='{' '.join(place.offers)}' ;;" for place in found]
    walk = [] if not commands else [
        '    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '        case "$place $word" in',
        f'            {commands}) place="$place $word" ;;',
        "        esac",
        "    done",
    ]  # fmt: skip
    lines = [
        _HEAD,
        f"{name}() {{",
        "    local word place='' offers=''",
        '    case "${COMP_WORDS[COMP_CWORD-1]}" in',
        f"        {'|'.join(valued(parser))}) compopt -o default; COMPREPLY=(); return ;;",
        "    esac",
        *walk,
        '    case "$place" in',
        *cases,
        "    esac",
        '    mapfile -t COMPREPLY < <(compgen -W "$offers" -- "${COMP_WORDS[COMP_CWORD]}")',
        "    [ ${#COMPREPLY[@]} -gt 0 ] || compopt -o default",
        "}",
        f"complete -F {name} {program}",
    ]
    return "\n".join(lines) + "\n"


def zsh(program: str, parser: ArgumentParser) -> str:
    found = list(places(parser))
    commands = "|".join(f'"{place.words}"' for place in found[1:])
    cases = []
    for place in found:
        cases += [f'    "{place.words}") offers=(', *(f"        {_described(*one)}" for one in place.offers.items())]
        cases.append("    ) ;;")
    walk = [] if not commands else [
        'for word in "${(@)words[2,CURRENT-1]}"; do',
        '    case "$place $word" in',
        f'        {commands}) place="$place $word" ;;',
        "    esac",
        "done",
    ]  # fmt: skip
    lines = [
        f"#compdef {program}",
        _HEAD,
        "local word place=''",
        "local -a offers",
        'case "${words[CURRENT-1]}" in',
        f"    {'|'.join(valued(parser))}) _files; return ;;",
        "esac",
        *walk,
        'case "$place" in',
        *cases,
        "esac",
        f"_describe {program} offers || _files",
    ]
    return "\n".join(lines) + "\n"


def _described(word: str, help_: str) -> str:
    """`'word:what it does'`, as _describe wants it."""
    words = help_.replace("%%", "%").replace("\n", " ").replace("'", "'\\''")
    return f"'{word}:{words}'"


def written() -> dict[str, str]:
    """Name of the file -> its content."""
    return {
        f"{program}.{shell}": write(program, make())
        for program, make in PARSERS.items()
        for shell, write in (("bash", bash), ("zsh", zsh))
    }


if __name__ == "__main__":
    for name, content in written().items():
        (FOLDER / name).write_text(content, encoding="utf-8")
