"""The command line of the agent: arguments, logging, exit codes. What the commands do is in `agent_commands`."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ap_agent.agent.fetch import make_client
from ap_agent.agent.run import run
from ap_agent.commands import agent_commands as commands
from ap_agent.common.credentials import DEFAULT_CREDENTIALS
from ap_agent.common.errors import SettingsError
from ap_agent.common.log import configure, get_logger
from ap_agent.common.outcome import OK, Outcome, ended, parser_of
from ap_agent.common.settings import REMOVED, Settings, load_settings, settings_without_enrolment
from ap_agent.common.systemd import is_under_systemd

COMMANDS = {
    "run": "run as a daemon: follow the service, hand over what it says, report what the limiter does",
    "once": "one cycle: ask the service, hand over, wait for the limiter, tell the service",
    "show": "print the limit, the traffic and the drops of each link and direction, as the limiter says",
    "usage": "print what each link used lately, against its limit",
    "status": "show the status of the running agent",
    "tell": "send the service one report of what the limiter said last, within 5 s or not at all",
    "enrol": "fetch this host's credentials with a one-time token, which is asked for (or read from stdin)",
    "accept": "take the configuration that is held back because links vanished; also while the agent runs",
    "accept-older": "take the given version once, although a newer one is installed; also while the agent runs",
}
_MAX_TOKEN_CHARS = 1024


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = parser().parse_args(argv)
    environment = environment if environment is not None else os.environ
    return ended(f"scionlab-bw-agent {given.command}", lambda: _do(given, environment))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole, each = parser_of(
        "scionlab-bw-agent",
        "Follows the Coordination Service for a SCIONLab attachment point: hands its bandwidth limits\n"
        "to scionlab-bw-limiter, which sets them in the kernel, and reports what the kernel has.",
        COMMANDS,
    )
    for name in ("show", "usage", "status"):
        each[name].add_argument("--json", action="store_true", help="for programs")
    each["show"].add_argument("-v", "--verbose", action="store_true", help="the parts of the drops, and packets")
    each["enrol"].add_argument("url", metavar="URL", help="address of the Coordination Service")
    each["enrol"].add_argument("--replace", action="store_true", help="replace the credentials that are there")
    each["enrol"].add_argument(
        "--credentials", type=Path, metavar="FILE", help=f"where to write them (default {DEFAULT_CREDENTIALS})"
    )
    each["accept-older"].add_argument("version", metavar="G.H", help="the version that the problem names, like 1.18")
    return whole


def _do(given: argparse.Namespace, environment: Mapping[str, str]) -> Outcome | int:
    if given.command == "enrol":
        settings = settings_without_enrolment(given.config, environment)
        return commands.enrol(settings, given.url, _ask_for_token, given.credentials, replaces=given.replace)
    if given.command == "run":
        return _run(given.config, environment)
    configure("error", under_systemd=False)  # the commands by hand say everything themselves
    settings = load_settings(given.config, environment)
    does: dict[str, Callable[[], Outcome]] = {
        "accept": lambda: commands.accept(settings),
        "accept-older": lambda: commands.accept_older(settings, given.version),
        "once": lambda: commands.once(settings, make_client),
        "tell": lambda: commands.tell(settings, make_client),
        "status": lambda: commands.status(settings, as_json=given.json),
        "usage": lambda: commands.usage(settings, as_json=given.json),
        "show": lambda: commands.show(settings, as_json=given.json, verbose=given.verbose),
    }
    return does[given.command]()


def _ask_for_token() -> str:
    """Never an argument: those are in the list of processes and in the shell's history."""
    if sys.stdin.isatty():
        try:
            return getpass.getpass("Enrolment token (from the host's page in the admin; not shown): ")
        except EOFError:
            return ""
    return sys.stdin.readline(_MAX_TOKEN_CHARS)


def _run(config: Path | None, environment: Mapping[str, str]) -> int:
    under_systemd = is_under_systemd(environment)
    settings, broken = _settings_to_run(config, environment)
    configure(settings.log_level, under_systemd=under_systemd)
    logger = get_logger()
    for key in settings.removed_keys:
        logger.warning("settings.removed_key", key=key, message=REMOVED[key])

    def load() -> Settings:
        fresh = load_settings(config, environment)
        configure(fresh.log_level, under_systemd=under_systemd)
        return fresh

    run(settings, logger, environment, load=load, broken=broken)
    return OK


def _settings_to_run(config: Path | None, environment: Mapping[str, str]) -> tuple[Settings, SettingsError | None]:
    """The settings; where the credentials cannot be used those without, and why: what is stored is handed over."""
    try:
        return load_settings(config, environment), None
    except SettingsError as exc:
        if exc.key != "credentials_file":
            raise
        return settings_without_enrolment(config, environment), exc
