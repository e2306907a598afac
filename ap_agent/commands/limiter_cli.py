"""The command line of the limiter: arguments, logging, exit codes. What the commands do is in `limiter_commands`."""

from __future__ import annotations

import argparse
import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from ap_agent import __version__
from ap_agent.commands import limiter_commands as commands
from ap_agent.commands.operator_choice import limiter_settings
from ap_agent.common import threads
from ap_agent.common.credentials import DEFAULT_CREDENTIALS
from ap_agent.common.lock import Lock
from ap_agent.common.log import configure, get_logger
from ap_agent.common.outcome import OK, Outcome, ended, parser_of
from ap_agent.common.settings import REMOVED, Settings
from ap_agent.common.systemd import Notifier, is_under_systemd
from ap_agent.common.watch import Watch
from ap_agent.dataplane.engine import Engine
from ap_agent.limiter import process

COMMANDS = {
    "run": "run as a daemon: enforce the document that was accepted last, then follow what the agent hands over",
    "plan": "print what `once` would change, and touch nothing",
    "once": "enforce what the agent handed over, once; with --link-info FILE enforce that file, without an agent",
    "show": "print the limit, the traffic and the drops of each link and direction",
    "reset": "remove all limits from the kernel; what is stored stays",
    "selftest": "measure in throw-away networks whether this kernel keeps limits; touches nothing of this host",
}


def main(
    argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None, engine: Engine | None = None
) -> int:
    """Run one command; returns the exit code. `engine` is the real one unless a test brings another."""
    given = parser().parse_args(argv)
    environment = environment if environment is not None else os.environ
    return ended(given.command, lambda: _do(given, environment, engine))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole, each = parser_of(
        "scionlab-bw-limiter",
        "Limits the bandwidth of each user AS's link in this host's kernel, as the document that scionlab-bw-agent "
        "hands over says. To see what it would do with a link_info.json: plan --link-info FILE.",
        COMMANDS,
    )
    for name in ("plan", "once"):
        each[name].add_argument("--link-info", type=Path, metavar="FILE", help="take the links from this file")
    for name in ("plan", "once", "show", "selftest"):
        each[name].add_argument("--json", action="store_true", help="for programs")
    for name in ("plan", "once", "reset"):
        each[name].add_argument("-v", "--verbose", action="store_true", help="each operation, and each unchanged link")
    each["show"].add_argument("-v", "--verbose", action="store_true", help="the parts of the drops, and packets")
    each["reset"].add_argument("--reason", metavar="TEXT", help="what the service is told as the reason")
    return whole


def real_engine(settings: Settings) -> Engine:
    return Engine(settings.maps_dir)


def _do(given: argparse.Namespace, environment: Mapping[str, str], engine: Engine | None) -> Outcome | int:
    if given.command == "selftest":
        from ap_agent.selftest.command import selftest  # noqa: PLC0415  # nothing of it is loaded in the daemon

        tested: Outcome = selftest(as_json=given.json)
        return tested
    settings, _, _ = limiter_settings(given.config, environment)
    if given.command == "run":
        return _run(given.config, settings, environment, engine)
    configure("error", under_systemd=False)  # the commands by hand say everything themselves
    used = engine if engine is not None else real_engine(settings)
    if given.command == "plan":
        return commands.plan(settings, used, given.link_info, as_json=given.json, verbose=given.verbose)
    if given.command == "once":
        return commands.once(settings, used, given.link_info, as_json=given.json, verbose=given.verbose)
    if given.command == "reset":
        return commands.reset(settings, used, reason=given.reason, verbose=given.verbose)
    return commands.show(settings, used, as_json=given.json, verbose=given.verbose)


def _run(config: Path | None, settings: Settings, environment: Mapping[str, str], engine: Engine | None) -> int:
    under_systemd = is_under_systemd(environment)
    configure(settings.log_level, under_systemd=under_systemd)
    logger = get_logger()
    commands.require_rights("CAP_NET_ADMIN")  # without CAP_BPF the state file says so

    def reload() -> Settings:
        fresh, _, _ = limiter_settings(config, environment)
        configure(fresh.log_level, under_systemd=under_systemd)
        return fresh

    with Lock(settings.limiter_run_dir, "limiter", "run") as lock:
        logger.info("limiter.start", limiter=__version__, unmatched=settings.unmatched, observe=settings.observe_only)
        for key in settings.removed_keys:
            logger.warning("settings.removed_key", key=key, message=REMOVED[key])
        used = engine if engine is not None else real_engine(settings)
        threads.start("enrolment", lambda: _follow_enrolment(settings, environment))
        process.run(settings, reload, used, lock, logger=logger, notifier=Notifier(environment))
    return OK


def _follow_enrolment(settings: Settings, environment: Mapping[str, str]) -> None:
    """What `enrol` writes counts without a restart by hand. Under systemd only another start has a copy of it."""
    path = settings.credentials_file or DEFAULT_CREDENTIALS
    # Of a host that is not enrolled any file is new, also one that was written while this process started.
    known = _identity(path) if settings.host_id is not None else None
    watch = Watch([path])
    while True:
        found = _identity(path)
        if found not in {None, known}:
            get_logger().info("limiter.enrolled", credentials=path)
            os.kill(os.getpid(), signal.SIGTERM if "CREDENTIALS_DIRECTORY" in environment else signal.SIGHUP)
            known = found
        select.select([watch], [], [])
        watch.drain()


def _identity(path: Path) -> tuple[int, int] | None:
    """Tells one file at a place from the next; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


if __name__ == "__main__":
    raise SystemExit(main())
