"""The agent's command line: arguments, logging, exit codes. What the commands do is in `commands` and `loop`."""

from __future__ import annotations

import argparse
import getpass
import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ap_agent import __version__
from ap_agent.agent.cycle import Agent, Client, make_client
from ap_agent.agent.exposition import Exposition
from ap_agent.agent.loop import Loop
from ap_agent.agent.store import Store
from ap_agent.commands import commands
from ap_agent.commands.commands import Outcome
from ap_agent.common.credentials import DEFAULT_CREDENTIALS
from ap_agent.common.errors import AgentError, SettingsError
from ap_agent.common.lock import AgentLock
from ap_agent.common.log import configure, get_logger
from ap_agent.common.places import check_places
from ap_agent.common.progress import Progress, for_person, for_service
from ap_agent.common.settings import DEFAULT_CONFIG, Settings, load_settings, settings_without_enrolment
from ap_agent.common.systemd import Notifier, is_under_systemd
from ap_agent.enforcing import Engine
from ap_agent.limiter.events import Listener
from ap_agent.model import Problem
from ap_agent.usage.recorder import CountsLoss, UsageRecorder

_COMMANDS = {
    "run": "run as a daemon: enforce what is stored, then follow the service",
    "once": "one cycle: fetch, enforce, tell; with --link-info FILE enforce that file, without a service",
    "plan": "print what `once` would change, and touch nothing",
    "show": "print what the kernel has now for each limited link",
    "reset": "remove all limits from the kernel and tell the service; what is stored stays",
    "usage": "print what each link used lately, against its limit",
    "status": "show the status of the running agent",
    "selftest": "measure in throw-away networks whether this kernel keeps limits; touches nothing of this host",
    "enrol": "fetch this host's credentials with a one-time token, which is asked for (or read from stdin)",
    "accept": "take the configuration that is held back because links vanished; also while the agent runs",
    "accept-older": "take the given version once, although a newer one is installed; also while the agent runs",
}
_MAX_TOKEN_CHARS = 1024
_EPILOG = """exit codes:
  0  done, everything is as asked for      3  not permitted (root or CAP_NET_ADMIN)
  1  something is not done or enforced     4  another agent process is at work here
  2  wrong command line or configuration   5  nothing new from the service; last good state enforced"""


def main(
    argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None, engine: Engine | None = None
) -> int:
    """Run one command; returns the exit code. `engine` is the real one unless a test brings another."""
    given = _parser().parse_args(argv)
    environment = environment if environment is not None else os.environ
    try:
        if given.command == "enrol":
            return print_outcome(_enrol(given, environment))
        if given.command == "selftest":
            return print_outcome(_selftest(given))
        settings, broken = _settings_for(given.command, given.config, environment)
        if given.command in {"accept", "accept-older"}:
            return print_outcome(_accept(given, settings))
        progress = for_service(environment) if given.command == "run" else for_person()
        used = engine if engine is not None else real_engine(progress)
        if given.command == "run":
            return _run(given.config, settings, environment, used, broken)
        configure("error", under_systemd=False)  # the commands by hand say everything themselves
        outcome = _outcome(given, settings, used, broken)
    except AgentError as exc:
        print(f"{given.command}: {exc.message}", file=sys.stderr)
        return commands.exit_code_of(exc)
    return print_outcome(outcome)


def print_outcome(outcome: Outcome) -> int:
    """What was done is done, also when nobody reads on (`plan | head`)."""
    for text, stream in ((outcome.out, sys.stdout), (outcome.err, sys.stderr)):
        try:
            if isinstance(
                stream, io.TextIOWrapper
            ):  # a character that the terminal lacks must not change the exit code
                stream.reconfigure(errors="backslashreplace")
            if text:
                print(text, file=stream, flush=True)
        except BrokenPipeError:
            # The interpreter flushes once more at its end, and would speak of it there.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())
    return outcome.exit_code


def real_engine(progress: Progress | None = None) -> Engine:
    """The tc engine; imported late, so that `--help` and a wrong configuration do not need pyroute2."""
    from ap_agent.reconcile import TcEngine  # noqa: PLC0415

    return TcEngine(progress=progress)


def settings_in_force(
    config: Path | None, environment: Mapping[str, str], *, load: Callable[..., Settings] = load_settings
) -> Settings:
    """File, then what `scionlab_bw_limiter -b` stored, then the environment. Raises `SettingsError`, `StoreError`,
    `NotPermittedError`."""
    settings = load(config, environment)
    stored = Store(settings.state_dir).load_operator()
    if stored.default_bandwidth_kbit is None:
        return settings
    overrides = {"unmatched": "default", "default_bandwidth_kbit": stored.default_bandwidth_kbit}
    return load(config, environment, overrides)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scionlab-bw-agent",
        description="The agent of a SCIONLab attachment point: makes the kernel limit each user AS's link.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"scionlab-bw-agent {__version__}")
    config_help = f"the configuration file (default {DEFAULT_CONFIG}, if it exists)"
    parser.add_argument("--config", type=Path, metavar="FILE", default=None, help=config_help)
    chosen = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, words in _COMMANDS.items():
        sub = chosen.add_parser(name, help=words, description=words)
        sub.add_argument("--config", type=Path, metavar="FILE", default=argparse.SUPPRESS, help=config_help)
        if name in {"once", "plan", "show"}:
            sub.add_argument("--link-info", type=Path, metavar="FILE", help="take the links from this file")
        if name in {"plan", "show", "usage", "status", "selftest"}:
            sub.add_argument("--json", action="store_true", help="for programs")
        if name == "enrol":
            sub.add_argument("url", metavar="URL", help="address of the Coordination Service")
            sub.add_argument("--replace", action="store_true", help="replace the credentials that are there")
            sub.add_argument(
                "--credentials", type=Path, metavar="FILE", help=f"where to write them (default {DEFAULT_CREDENTIALS})"
            )
        if name == "accept-older":
            sub.add_argument("version", metavar="G.H", help="the version that the problem names, for example 1.18")
        if name == "reset":
            sub.add_argument("--reason", metavar="TEXT", help="what the service is told as the reason")
        if name in {"once", "plan", "reset"}:
            sub.add_argument("-v", "--verbose", action="store_true", help="each filter on a line of its own")
    return parser


def _enrol(given: argparse.Namespace, environment: Mapping[str, str]) -> Outcome:
    settings = settings_without_enrolment(given.config, environment)
    return commands.enrol(settings, given.url, _ask_for_token, given.credentials, replaces=given.replace)


def _accept(given: argparse.Namespace, settings: Settings) -> Outcome:
    if given.command == "accept":
        return commands.accept(settings)
    return commands.accept_older(settings, given.version)


def _selftest(given: argparse.Namespace) -> Outcome:
    """Needs no configuration. Imported late: nothing of it is loaded while the agent runs."""
    from ap_agent.selftest.command import selftest  # noqa: PLC0415

    return selftest(as_json=given.json)


def _ask_for_token() -> str:
    """Never an argument: those are in the list of processes and in the shell's history."""
    if sys.stdin.isatty():
        try:
            return getpass.getpass("Enrolment token (from the host's page in the admin; not shown): ")
        except EOFError:
            return ""
    return sys.stdin.readline(_MAX_TOKEN_CHARS)


def _outcome(given: argparse.Namespace, settings: Settings, engine: Engine, broken: SettingsError | None) -> Outcome:
    if given.command == "once":
        return commands.once(settings, engine, given.link_info, make_client, verbose=given.verbose)
    if given.command == "plan":
        return commands.plan(settings, engine, given.link_info, make_client, as_json=given.json, verbose=given.verbose)
    if given.command == "reset":
        return commands.reset(settings, engine, make_client, reason=given.reason, broken=broken, verbose=given.verbose)
    if given.command == "status":
        return commands.status(settings, as_json=given.json)
    if given.command == "usage":
        return commands.usage(settings, as_json=given.json)
    file = given.link_info
    source = commands.links_from_file(file) if file is not None else commands.stored_source(settings)
    return commands.show(settings, engine, source, as_json=given.json)


def _settings_for(
    command: str, config: Path | None, environment: Mapping[str, str]
) -> tuple[Settings, SettingsError | None]:
    """The settings; for `run` and `reset` also where the credentials cannot be used: without, and with what is wrong.

    After a boot the stored limits are all that there is, and neither enforcing them nor taking them off needs any.
    """
    try:
        return settings_in_force(config, environment), None
    except SettingsError as exc:
        if command not in {"run", "reset"} or exc.key != "credentials_file":
            raise
        return settings_in_force(config, environment, load=settings_without_enrolment), exc


def _run(
    config: Path | None,
    settings: Settings,
    environment: Mapping[str, str],
    engine: Engine,
    broken: SettingsError | None,
) -> int:
    under_systemd = is_under_systemd(environment)
    configure(settings.log_level, under_systemd=under_systemd)
    logger = get_logger()
    commands.require_net_admin()
    check_places(settings)

    def reload() -> tuple[Settings, Client | None]:
        fresh = settings_in_force(config, environment)
        check_places(fresh)
        configure(fresh.log_level, under_systemd=under_systemd)
        return fresh, make_client(fresh)

    credentials = settings.credentials_file or DEFAULT_CREDENTIALS
    # Of a host that is not enrolled any file is new, also one that was written while this process started.
    at_start = _identity(credentials) if broken is not None or settings.url is not None else None

    def follow_enrolment(loop: Loop) -> None:
        """What `enrol` writes counts without a restart by hand. Under systemd only another start has a copy of it."""
        nonlocal at_start
        found = _identity(credentials)
        if found in {None, at_start}:
            return
        at_start = found
        logger.info("agent.enrolled", credentials=credentials)
        if "CREDENTIALS_DIRECTORY" in environment:
            loop.stop()
        else:
            loop.reload()

    with AgentLock(settings.run_dir, "run") as lock:
        if broken is not None and not _has_bundle(settings):
            raise broken
        logger.info("agent.start", agent=__version__, url=settings.url, unmatched=settings.unmatched)
        agent = Agent(settings, engine, make_client(settings), logger)
        if broken is not None:
            agent.extra["settings"] = Problem("settings_invalid", "credentials", broken.message)
        if isinstance(engine, CountsLoss):
            usage = UsageRecorder(agent, logger, refused=engine.refused)
            engine.before_loss = usage.before_loss
        else:
            usage = UsageRecorder(agent, logger)
        with Listener() as events:
            loop = Loop(
                agent,
                logger,
                notifier=Notifier(environment),
                events=events,
                reload=reload,
                keep_lock=lock.keep,
                companions=(usage, Exposition(agent, logger, usage)),
                each_glance=lambda: follow_enrolment(loop),
            )
            loop.install_signals()
            loop.run()
    return commands.OK


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells one file at a place from the next; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _has_bundle(settings: Settings) -> bool:
    try:
        return Store(settings.state_dir).load(host_id=settings.host_id) is not None
    except AgentError:
        return False


if __name__ == "__main__":
    raise SystemExit(main())
