"""`scionlab-bw-limiter`: command line and commands. No network, no service, no access to the agent.

`legacy_cli` uses these commands, too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import select
import signal
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from ap_agent import __version__
from ap_agent.commands import tables
from ap_agent.commands.operator_choice import limiter_settings
from ap_agent.commands.show import show
from ap_agent.common import rights, threads
from ap_agent.common.credentials import NewCredentials
from ap_agent.common.errors import AgentError
from ap_agent.common.files import read_plain
from ap_agent.common.lock import Lock
from ap_agent.common.log import configure, get_logger
from ap_agent.common.outcome import NOT_DONE, OK, Outcome, ended, parser_of
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier, is_under_systemd
from ap_agent.common.text import enforced_words, problem_lines, timed_lines
from ap_agent.common.watch import Watch
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.outcome import Outcome as Enforced
from ap_agent.document.handover import Configuration
from ap_agent.document.signed_text import Version
from ap_agent.document.state import LimiterState
from ap_agent.limiter import oneshot, process
from ap_agent.limiter.documents import Documents
from contract.link_info import LinkInfoError, parse_link_info

COMMANDS = {
    "run": "run as a daemon: enforce the last accepted document, then follow the agent",
    "plan": "print what `once` would change, without changing it",
    "once": "enforce the last document of the agent once; with --link-info FILE enforce that file, without an agent",
    "show": "print the limit, the traffic and the drops of each link and direction",
    "reset": "remove all limits from the kernel; stored documents are kept",
    "selftest": "test in temporary network namespaces whether this kernel enforces limits; does not touch this host",
}
OPERATOR = "The operator of this host removed the limits."
NOTHING_TO_ENFORCE = (
    "No configuration to enforce: the agent has not handed one over (see `scionlab-bw-agent status`). Use "
    "--link-info FILE to read the links from a file."
)
_MAX_LINK_INFO_BYTES = 16 * 1024 * 1024


def main(
    argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None, engine: Engine | None = None
) -> int:
    """Run one command; return the exit code. `engine` is a parameter for tests."""
    given = parser().parse_args(argv)
    environment = environment if environment is not None else os.environ
    return ended(f"scionlab-bw-limiter {given.command}", lambda: _do(given, environment, engine))


def parser() -> argparse.ArgumentParser:
    whole, each = parser_of(
        "scionlab-bw-limiter",
        "Limits the bandwidth of each user AS's link in this host's kernel, as the\n"
        "document that scionlab-bw-agent hands over says. To see what it would do with a\n"
        "link_info.json: scionlab-bw-limiter plan --link-info FILE",
        COMMANDS,
    )
    for name in ("plan", "once"):
        each[name].add_argument("--link-info", type=Path, metavar="FILE", help="read the links from this file")
    for name in ("plan", "once", "show", "selftest"):
        each[name].add_argument("--json", action="store_true", help="print JSON")
    for name in ("plan", "once", "reset"):
        each[name].add_argument(
            "-v", "--verbose", action="store_true", help="also print each operation and each unchanged link"
        )
    each["show"].add_argument(
        "-v", "--verbose", action="store_true", help="also print packets, kinds of drops, and addresses"
    )
    each["reset"].add_argument("--reason", metavar="TEXT", help="the reason, reported to the service")
    return whole


def _do(given: argparse.Namespace, environment: Mapping[str, str], engine: Engine | None) -> Outcome | int:
    if given.command == "selftest":
        from ap_agent.selftest.command import selftest  # noqa: PLC0415  # nothing of it is loaded in the daemon

        tested: Outcome = selftest(as_json=given.json)
        return tested
    settings, _ = limiter_settings(given.config, environment)
    if given.command == "run":
        return _run(given.config, settings, environment, engine)
    configure("error", under_systemd=False)  # manual commands print everything themselves
    used = engine if engine is not None else Engine(settings.maps_dir)
    if given.command == "show":
        return show_kernel(settings, used, _known(settings), as_json=given.json, verbose=given.verbose)
    does = {"plan": _plan, "once": _once, "reset": _reset}
    return does[given.command](settings, used, given)


# --- source of the configuration ------------------------------------------------------------------------------------


class Source(NamedTuple):
    """The configuration to enforce and its origin, in words. From a file: without host, version and `documents`, which
    store handed over documents."""

    configuration: Configuration
    words: str
    documents: Documents | None = None


class InputError(AgentError):
    """A file named on the command line cannot be used; nothing was changed."""


def source_of_file(path: Path) -> Source:
    """Raises `InputError` with the file's name and the rule that it breaks."""
    try:
        data, _ = read_plain(path, _MAX_LINK_INFO_BYTES)
        links = parse_link_info(data, max_bytes=_MAX_LINK_INFO_BYTES)
    except OSError as exc:
        raise InputError(f"{path} cannot be read: {exc.strerror}. Nothing was changed.") from exc
    except LinkInfoError as exc:
        raise InputError(f"{path} cannot be used: {exc.message} Nothing was changed.") from exc
    digest = hashlib.sha256(data).hexdigest()
    return Source(Configuration("", Version(0, 0, None), digest, links), f"file {path}")


def handed_source(settings: Settings) -> tuple[Source | None, tuple[Problem, ...]]:
    """The handed over document if acceptable, otherwise the limiter's own copy; with the problems found."""
    documents = oneshot.newest(settings, datetime.now(UTC))
    if documents.accepted is None:
        return None, documents.problems
    configuration = documents.accepted.configuration
    order = configuration.order
    limits = f", limits {order.limits_version}" if order.limits_version is not None else ""
    words = f"configuration {order.configuration}{limits}"
    return Source(configuration, words, documents), documents.problems


def _source(settings: Settings, link_info: Path | None) -> tuple[Source | None, tuple[Problem, ...]]:
    return (source_of_file(link_info), ()) if link_info is not None else handed_source(settings)


def _known(settings: Settings) -> Source | None:
    """Names and addresses of links, which are not in the state file, as far as readable."""
    try:
        return handed_source(settings)[0]
    except AgentError:
        return None


# --- commands -------------------------------------------------------------------------------------------------------


def _plan(settings: Settings, engine: Engine, given: argparse.Namespace) -> Outcome:
    """Show what `once` would change. Read-only."""
    source, problems = _source(settings, given.link_info)
    if source is None:
        return _nothing_to_enforce(problems)
    found = oneshot.plan(settings, engine, source.configuration, datetime.now(UTC))
    every = (*problems, *found.problems)
    code = OK if found.is_ok and not found.failed and not problems else NOT_DONE
    if given.json:
        return Outcome(code, json.dumps(tables.plan_json(found, every, source.words), indent=1))
    lines = [f"From {source.words}:", "", *_plan_lines(found, source, settings, is_done=False, verbose=given.verbose)]
    return Outcome(code, "\n".join(lines), "\n".join(tables.error_lines(every, found.failed, "cannot be enforced")))


def _once(settings: Settings, engine: Engine, given: argparse.Namespace) -> Outcome:
    """Enforce the handed over document, or a file, and write the state file."""
    rights.require_rights()
    with Lock(settings.limiter_run_dir, "limiter", "once"):
        source, problems = _source(settings, given.link_info)
        if source is None:
            return _nothing_to_enforce(problems)
        return enforce_locked(settings, engine, source, as_json=given.json, verbose=given.verbose)


def _nothing_to_enforce(problems: tuple[Problem, ...]) -> Outcome:
    return Outcome(NOT_DONE, err="\n".join([*problem_lines(problems), NOTHING_TO_ENFORCE]))


def enforce_locked(
    settings: Settings, engine: Engine, source: Source, *, as_json: bool = False, verbose: bool = False
) -> Outcome:
    """For a caller with the lock. The handed over document is stored, as by `run`."""
    state, done = oneshot.enforce(settings, engine, source.configuration, datetime.now(UTC))
    problems: tuple[Problem, ...] = ()
    if source.documents is not None:
        source.documents.keep()
        problems = source.documents.problems
    code = OK if state.is_ok and not problems else NOT_DONE
    every = (*problems, *state.problems)
    if as_json:
        return Outcome(code, json.dumps(tables.plan_json(done, every, source.words), indent=1))
    words = enforced_words(state.count("enforced"), state.count("observed"), len(state.links), "limited links")
    lines = [f"From {source.words}: {words}.", ""]
    lines += _plan_lines(done, source, settings, is_done=True, verbose=verbose)
    return Outcome(code, "\n".join(lines), "\n".join(tables.error_lines(every, done.failed)))


def _plan_lines(done: Enforced, source: Source, settings: Settings, *, is_done: bool, verbose: bool) -> list[str]:
    is_observe_only = settings.observe_only or source.configuration.is_observe_only
    links, now = source.configuration.links, datetime.now(UTC)
    lines = tables.plan_lines(done, links, now, is_done=is_done, is_observe_only=is_observe_only, verbose=verbose)
    return [*lines, *timed_lines(links, now)]


def show_kernel(
    settings: Settings, engine: Engine, source: Source | None, *, as_json: bool = False, verbose: bool = False
) -> Outcome:
    """The limiter's last state; if it does not run, the kernel's, if `source` was enforced and we have the rights."""

    def look(written: LimiterState) -> LimiterState:
        if source is None or source.configuration.limits_digest != written.limits_digest:
            return written
        try:
            return oneshot.observe(settings, engine, source.configuration, datetime.now(UTC))
        except AgentError:
            return written

    links = source.configuration.links if source is not None else {}
    return show(settings, links, look=look, as_json=as_json, verbose=verbose)


def _reset(settings: Settings, engine: Engine, given: argparse.Namespace) -> Outcome:
    rights.require_rights()
    with Lock(settings.limiter_run_dir, "limiter", "reset"):
        return reset_locked(settings, engine, reason=given.reason or OPERATOR, verbose=given.verbose)


def reset_locked(settings: Settings, engine: Engine, *, reason: str = OPERATOR, verbose: bool = False) -> Outcome:
    """Remove everything of ours from the kernel and record it in the state file; stored documents are kept. For a
    caller with the lock."""
    state, done = oneshot.reset(settings, engine, reason, datetime.now(UTC))
    lines = ["No objects of the limiter in the kernel."]
    if not done.plan.is_empty:
        lines = tables.plan_lines(done, {}, datetime.now(UTC), is_done=True, is_observe_only=False, verbose=verbose)
    return Outcome(OK if state.is_ok else NOT_DONE, "\n".join(lines), "\n".join(problem_lines(state.problems)))


# --- the daemon -----------------------------------------------------------------------------------------------------


def _run(config: Path | None, settings: Settings, environment: Mapping[str, str], engine: Engine | None) -> int:
    under_systemd = is_under_systemd(environment)
    configure(settings.log_level, under_systemd=under_systemd)
    logger = get_logger()
    rights.require_rights("CAP_NET_ADMIN")  # without CAP_BPF the state file is used

    def reload() -> Settings:
        fresh, _ = limiter_settings(config, environment)
        configure(fresh.log_level, under_systemd=under_systemd)
        return fresh

    with Lock(settings.limiter_run_dir, "limiter", "run") as lock:
        logger.info("limiter.start", limiter=__version__, unmatched=settings.unmatched, observe=settings.observe_only)
        used = engine if engine is not None else Engine(settings.maps_dir)
        threads.start(lambda: _follow_enrolment(settings, environment))
        process.run(settings, reload, used, lock, logger=logger, notifier=Notifier(environment))
    return OK


def _follow_enrolment(settings: Settings, environment: Mapping[str, str]) -> None:
    new = NewCredentials(settings.credentials_file, environment, is_enrolled=settings.host_id is not None)
    watch = Watch([new.path])
    while True:
        if new.are_there():
            get_logger().info("limiter.enrolled", credentials=new.path)
            os.kill(os.getpid(), signal.SIGTERM if new.need_restart else signal.SIGHUP)
        select.select([watch], [], [])
        watch.drain()


if __name__ == "__main__":
    raise SystemExit(main())
