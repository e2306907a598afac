"""`scionlab-bw-agent`: its command line, and what each command does. Only `routes` touches the kernel."""

from __future__ import annotations

import argparse
import getpass
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ap_agent.agent import enrol as enrolment
from ap_agent.agent.agent import Agent, send_last_receipt
from ap_agent.agent.fetch import make_client
from ap_agent.agent.problems import DELIVERY_CODES, NOT_ENROLLED
from ap_agent.agent.run import check_places, run
from ap_agent.agent.settings import load_settings
from ap_agent.agent.store import Store, stored_links
from ap_agent.commands import routes_parser
from ap_agent.commands.show import show
from ap_agent.commands.status import status
from ap_agent.commands.watch import watch
from ap_agent.common.credentials import DEFAULT_CREDENTIALS
from ap_agent.common.errors import SettingsError, StoreError
from ap_agent.common.lock import Lock
from ap_agent.common.log import configure, get_logger
from ap_agent.common.outcome import NOT_DONE, NOTHING_NEW, OK, Outcome, ended, parser_of
from ap_agent.common.ownership import as_owner_of
from ap_agent.common.settings import Settings, settings_without_enrolment
from ap_agent.common.systemd import is_under_systemd
from ap_agent.common.text import problem_lines
from ap_agent.document.trust import Acceptance, Trust, jumps, load_trust, save_acceptance, trust_now
from ap_agent.usage.spool import FILE_NAME as SPOOL
from ap_agent.usage.table import lines, read_report

COMMANDS = {
    "run": "run as a daemon: follow the service, hand its configuration to the limiter, report the result",
    "once": "run one cycle: fetch, hand over to the limiter, wait for it, report",
    "show": "print the limit, the traffic and the drops of each link and direction, as reported by the limiter",
    "usage": "print the recent traffic of each link and its limit",
    "status": "show the status of the running agent on one screen",
    "watch": "show the status and the busiest links until Ctrl-C, as top does",
    "tell": "send one report of the last state of the limiter to the service, within 5 s or not at all",
    "enrol": "fetch the credentials of this host with a one-time token (prompted for, or read from stdin)",
    "accept": "accept the configuration that is held back because links vanished; also while the agent runs",
    "accept-older": "accept the given version once, although a newer one is installed; also while the agent runs",
    "routes": "policy routing with several uplinks, so that replies leave by the uplink where requests arrive",
}
_MAX_TOKEN_CHARS = 1024
_LIMITER_ANSWERS_S = 30.0  # the first limits of 4000 links take 3 s; ten times as much on a slow machine
_RELOAD = "`systemctl reload scionlab-bw-agent` fetches immediately"


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = parser().parse_args(argv)
    environment = environment if environment is not None else os.environ
    return ended(f"scionlab-bw-agent {given.command}", lambda: _do(given, environment))


def parser() -> argparse.ArgumentParser:
    whole, each = parser_of(
        "scionlab-bw-agent",
        "Follows the Coordination Service for a SCIONLab attachment point: hands its\n"
        "bandwidth limits to scionlab-bw-limiter, which sets them in the kernel, and\n"
        "reports the state of the kernel.",
        COMMANDS,
    )
    for name in ("show", "usage", "status"):
        each[name].add_argument("--json", action="store_true", help="print JSON")
    each["show"].add_argument(
        "-v", "--verbose", action="store_true", help="also print packets, kinds of drops, and addresses"
    )
    each["enrol"].add_argument("url", metavar="URL", help="URL of the Coordination Service")
    each["enrol"].add_argument("--replace", action="store_true", help="replace existing credentials")
    each["enrol"].add_argument(
        "--credentials", type=Path, metavar="FILE", help=f"where to write them (default {DEFAULT_CREDENTIALS})"
    )
    each["accept-older"].add_argument("version", metavar="G.H", help="the version named in the problem, like 1.18")
    routes_parser.add(each["routes"])
    return whole


def _do(given: argparse.Namespace, environment: Mapping[str, str]) -> Outcome | int:
    if given.command == "enrol":
        return _enrol(settings_without_enrolment(given.config, environment), given)
    if given.command == "run":
        return _run(given.config, environment)
    configure("error", under_systemd=False)  # manual commands print everything themselves
    if given.command == "routes":
        from ap_agent.commands.routes_cli import routes  # noqa: PLC0415  # nothing of it is loaded in the daemon

        return routes(given, environment)
    settings = load_settings(given.config, environment)
    does = {
        "accept": _accept,
        "accept-older": _accept_older,
        "once": _once,
        "tell": _send_receipt,
        "status": status,
        "watch": lambda settings, _given: watch(settings),
        "usage": _usage,
        "show": _show,
    }
    return does[given.command](settings, given)


# --- what the service may say ---------------------------------------------------------------------------------------


def _enrol(settings: Settings, given: argparse.Namespace) -> Outcome:
    """Exchange a one-time token for this host's credentials. Raises `AgentError`."""
    path = given.credentials or settings.credentials_file or DEFAULT_CREDENTIALS
    token = enrolment.parse_token(_ask_for_token())
    done = enrolment.enrol(given.url, token, settings, path, replaces=given.replace)
    return Outcome(OK, "\n".join(enrolment.words(done)))


def _ask_for_token() -> str:
    """Never an argument, which would be visible in the process list and the shell's history."""
    if sys.stdin is not None and sys.stdin.isatty():
        try:
            return getpass.getpass("Enrolment token (from the host's page in the admin; input is hidden): ")
        except EOFError:
            return ""
    try:
        return sys.stdin.readline(_MAX_TOKEN_CHARS) if sys.stdin is not None else ""
    except UnicodeDecodeError:
        raise SettingsError("Standard input is no text. Copy the enrolment token again.", key="") from None


def _accept(settings: Settings, _given: argparse.Namespace) -> Outcome:
    """Accept the configuration that is held back because links vanished, also in a running agent."""
    store = Store(settings.state_dir)
    bundle, hold = store.load(host_id=settings.host_id), store.load_hold()
    newest = _trust(settings, store).newest
    if bundle is None or newest is None or hold is None or hold.in_force != bundle.name:
        return Outcome(NOT_DONE, err="Nothing to accept: no configuration is held back.")
    _save_acceptance(settings.state_dir, Acceptance(hold.offered, newest))
    return Outcome(
        OK,
        f"Configuration {hold.offered}, which lacks {hold.missing} of the {hold.limited} limited links in force, "
        f"will be accepted when the service offers it next (within {settings.backoff_max_s:g} s; {_RELOAD}).",
    )


def _accept_older(settings: Settings, given: argparse.Namespace) -> Outcome:
    """Accept the given version once in place of a newer one, also in running agent and limiter."""
    version = given.version
    match = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})", version, flags=re.ASCII)
    if match is None:
        raise SettingsError(
            f'"{version}" is not a version; write it as shown in the problem, for example 1.18.', key=""
        )
    newest = _trust(settings, Store(settings.state_dir)).newest
    limiters = _stored_trust(settings.limiter_state_dir)
    # With the same G.H the limits may be older, which only the bundle shows.
    is_newer = newest is not None and (int(match[1]), int(match[2])) > newest[:2]
    if newest is None or (is_newer and not jumps(int(match[1]), newest)):
        installed = f"{newest} is installed here" if newest is not None else "no configuration is installed here"
        return Outcome(NOT_DONE, err=f"Nothing to accept: {installed}, so {version} is accepted anyway.")
    version = f"{int(match[1])}.{int(match[2])}"
    _save_acceptance(settings.state_dir, Acceptance(version, newest))
    if limiters is not None and limiters.newest is not None:
        _save_acceptance(settings.limiter_state_dir, Acceptance(version, limiters.newest))
    return Outcome(
        OK,
        f"Configuration {version} will be accepted once, in place of {newest}, when the service offers it next (at the "
        f"latest in {settings.backoff_max_s:g} s; {_RELOAD}).",
    )


def _save_acceptance(folder: Path, acceptance: Acceptance) -> None:
    try:
        with as_owner_of(folder):
            save_acceptance(folder, acceptance)
    except OSError as exc:
        raise StoreError(f"{folder} cannot be written: {exc.strerror}. Run as root.") from exc


def _trust(settings: Settings, store: Store) -> Trust:
    """Current trust, as the agent would load it at its next start. Read-only."""
    return trust_now(settings, _stored_trust(settings.state_dir), store.load(host_id=settings.host_id))


def _stored_trust(folder: Path) -> Trust | None:
    try:
        return load_trust(folder)
    except StoreError:  # its owner repairs it
        return None


# --- one cycle by hand ----------------------------------------------------------------------------------------------


def _once(settings: Settings, _given: argparse.Namespace) -> Outcome:
    check_places(settings)
    with Lock(settings.run_dir, "agent", "once"):
        client = make_client(settings)
        agent = Agent(settings, client, get_logger())
        try:
            agent.configuration.load()
            pulled = agent.pull()
            bundle = agent.configuration.bundle
            if bundle is None and pulled.contact == "none":
                raise SettingsError(NOT_ENROLLED)
            heard = bundle is not None and agent.wait_for_limiter(_LIMITER_ANSWERS_S)
            agent.send_receipt()
        finally:
            agent.hang_up()
    problems = agent.problems
    if bundle is None:
        lines = [*problem_lines(problems), "No configuration to hand over; nothing was changed."]
        return Outcome(NOT_DONE, err="\n".join(lines))
    if not heard:
        said = (
            f"The limiter has not answered within {_LIMITER_ANSWERS_S:g} s; configuration {bundle.version} was "
            "handed over."
        )
        return Outcome(NOT_DONE, err="\n".join([*problem_lines(problems), said]))
    shown = show(settings, stored_links(settings.state_dir, host_id=settings.host_id))
    code = shown.exit_code
    if code == OK and any(one.code in DELIVERY_CODES for one in problems):
        code = NOTHING_NEW
    delivery = problem_lines(one for one in problems if agent.limiter.state and one not in agent.limiter.state.problems)
    return Outcome(code, shown.out, "\n".join([*delivery, *([shown.err] if shown.err else [])]))


def _send_receipt(settings: Settings, _given: argparse.Namespace) -> Outcome:
    """Send one receipt of the limiter's last state within seconds, or give up: after `reset`, and at a removal."""
    if settings.url is None:
        return Outcome(OK, "No service is configured.")
    untold = send_last_receipt(settings, make_client, get_logger())
    if untold is not None:
        return Outcome(NOT_DONE, err=f"The report was not sent: {untold}")
    return Outcome(OK, "The report was sent.")


# --- commands that only look ----------------------------------------------------------------------------------------


def _show(settings: Settings, given: argparse.Namespace) -> Outcome:
    return show(
        settings, stored_links(settings.state_dir, host_id=settings.host_id), as_json=given.json, verbose=given.verbose
    )


def _usage(settings: Settings, given: argparse.Namespace) -> Outcome:
    """Print recent usage of each link, as last counted by the running agent."""
    report = read_report(settings.state_dir / SPOOL)
    if report is None:
        text = f"No traffic sample yet in {settings.state_dir} (the agent must be running, with links)."
        return Outcome(NOT_DONE, err=text)
    if given.json:
        return Outcome(OK, json.dumps(report.to_json(), indent=1))
    links = stored_links(settings.state_dir, host_id=settings.host_id)
    return Outcome(OK, "\n".join(lines(report, links, datetime.now(UTC))))


# --- the daemon -----------------------------------------------------------------------------------------------------


def _run(config: Path | None, environment: Mapping[str, str]) -> int:
    under_systemd = is_under_systemd(environment)
    settings, broken = _settings_to_run(config, environment)
    configure(settings.log_level, under_systemd=under_systemd)
    logger = get_logger()

    def load() -> Settings:
        fresh = load_settings(config, environment)
        configure(fresh.log_level, under_systemd=under_systemd)
        return fresh

    run(settings, logger, environment, load=load, broken=broken)
    return OK


def _settings_to_run(config: Path | None, environment: Mapping[str, str]) -> tuple[Settings, SettingsError | None]:
    """The settings; if the credentials are unusable, those without them and the reason: the stored configuration is
    handed over."""
    try:
        return load_settings(config, environment), None
    except SettingsError as exc:
        if exc.key != "credentials_file":
            raise
        return settings_without_enrolment(config, environment), exc
