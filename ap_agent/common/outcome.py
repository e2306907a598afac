"""The outcome of a command and its output. Exit codes, the same for all programs:

0   done
1   something was not done, or a link is not enforced; the text says which and why
2   the command line or the configuration is wrong; nothing was touched
3   not permitted: root or a capability is needed
4   another process of the same program is running; nothing was touched
5   nothing new from the service; the last good state is enforced
"""

from __future__ import annotations

import io
import os
import sys
from argparse import SUPPRESS, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ap_agent import __version__
from ap_agent.common.errors import AgentError, LockHeldError, NotPermittedError, SettingsError
from ap_agent.common.settings import DEFAULT_CONFIG

OK, NOT_DONE, USAGE, NOT_PERMITTED, LOCKED, NOTHING_NEW = range(6)
EXIT_CODES = """exit codes:
  0  done
  1  something was not done or enforced
  2  wrong command line or configuration
  3  not permitted: run as root
  4  another process of this program is running
  5  nothing new from the service; last good state enforced"""


@dataclass(frozen=True)
class Outcome:
    """Output for stdout and stderr, and the exit code."""

    exit_code: int
    out: str = ""
    err: str = ""


def exit_code_of(error: AgentError) -> int:
    if isinstance(error, SettingsError):
        return USAGE
    if isinstance(error, LockHeldError):
        return LOCKED
    if isinstance(error, NotPermittedError):
        return NOT_PERMITTED
    return NOT_DONE


def print_outcome(outcome: Outcome) -> int:
    """A closed pipe is not an error (`plan | head`)."""
    for text, stream in ((outcome.out, sys.stdout), (outcome.err, sys.stderr)):
        try:
            if isinstance(stream, io.TextIOWrapper):  # a character that the terminal lacks is no failure
                stream.reconfigure(errors="backslashreplace")
            if text:
                print(text, file=stream, flush=True)
        except BrokenPipeError:
            # The interpreter flushes again at exit, and would report the error.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
    return outcome.exit_code


def ended(command: str, do: Callable[[], Outcome | int]) -> int:
    """Run a command and print its outcome or error; return the exit code."""
    try:
        done = do()
    except AgentError as exc:
        print(f"{command}: {exc.message}", file=sys.stderr)
        return exit_code_of(exc)
    return done if isinstance(done, int) else print_outcome(done)


def parser_of(
    program: str, description: str, commands: Mapping[str, str]
) -> tuple[ArgumentParser, dict[str, ArgumentParser]]:
    """The parser of a program, and those of its commands; each has --config."""
    parser = ArgumentParser(
        prog=program, description=description, epilog=EXIT_CODES, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"{program} {__version__}")
    config_help = f"the configuration file (default {DEFAULT_CONFIG}, if it exists)"
    parser.add_argument("--config", type=Path, metavar="FILE", default=None, help=config_help)
    chosen = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    found = {}
    for name, words in commands.items():
        found[name] = chosen.add_parser(name, help=words, description=words[:1].upper() + words[1:] + ".")
        found[name].add_argument("--config", type=Path, metavar="FILE", default=SUPPRESS, help=config_help)
    return parser, found
