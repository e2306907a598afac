"""What each command does, as a function from settings to an `Outcome`; both command lines are doors to these.

Exit codes, the same for all:

    0   done: everything that was asked for is so, in the kernel
    1   something was not done, or a link is not enforced; the text says which and why
    2   the command line or the configuration is wrong; nothing was touched
    3   not permitted: root or CAP_NET_ADMIN is needed
    4   another process of the agent is at work on this kernel; nothing was touched
    5   nothing new could be had from the service; the last good state is enforced
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ap_agent.agent import enrol as enrolment
from ap_agent.agent.cycle import Agent, Client
from ap_agent.agent.fetch import Have, NewBundle, NoAS
from ap_agent.agent.health import ago, describe, is_running, read_health
from ap_agent.agent.hold import hold_for, uptime
from ap_agent.agent.problems import DELIVERY_CODES, no_as_problem, problem_of
from ap_agent.agent.receipt import link_fields
from ap_agent.agent.removal import OPERATOR, send_removed
from ap_agent.agent.store import Store
from ap_agent.common.credentials import DEFAULT_CREDENTIALS
from ap_agent.common.errors import AgentError, ApplyError, LockHeldError, NotPermittedError, SettingsError, StoreError
from ap_agent.common.files import read_plain
from ap_agent.common.lock import SERVICE, AgentLock
from ap_agent.common.log import get_logger
from ap_agent.common.places import check_places
from ap_agent.common.settings import Settings
from ap_agent.common.text import links_table, op_lines, problem_lines, timed_lines
from ap_agent.document.bundle import Bundle, accept_bundle
from ap_agent.document.timetable import links_at
from ap_agent.document.trust import NOT_ENROLLED, Acceptance, Trust, is_accepted, trust_now
from ap_agent.enforcing import Enforced, Engine, enforce_links
from ap_agent.model import LinkState, Problem
from ap_agent.usage.spool import FOLDER
from ap_agent.usage.table import read_report, table
from bandwidth_config import LinkInfo, LinkInfoError, parse_link_info

if TYPE_CHECKING:
    from ap_agent.reconcile import CycleResult

OK, NOT_DONE, USAGE, NOT_PERMITTED, LOCKED, NOTHING_NEW = range(6)
STOCK_LINK_INFO = Path("/etc/scion/link_info.json")  # where the stock client installs it
_CAP_NET_ADMIN = 12  # <linux/capability.h>
_MAX_LINK_INFO_BYTES = 16 * 1024 * 1024

MakeClient = Callable[[Settings], Client | None]


@dataclass(frozen=True)
class Outcome:
    """What to print on stdout and stderr, and the exit code."""

    exit_code: int
    out: str = ""
    err: str = ""


@dataclass(frozen=True)
class Source:
    """Some links and where they come from, in words."""

    links: Mapping[int, LinkInfo]
    words: str


class InputError(AgentError):
    """A file that was named on the command line cannot be used; nothing was changed."""


def exit_code_of(error: AgentError) -> int:
    if isinstance(error, SettingsError):
        return USAGE
    if isinstance(error, LockHeldError):
        return LOCKED
    if isinstance(error, NotPermittedError) or (
        isinstance(error, ApplyError) and error.errno in {errno.EPERM, errno.EACCES}
    ):
        return NOT_PERMITTED
    return NOT_DONE


# --- where links come from ------------------------------------------------------------------------------------------


def links_from_file(path: Path) -> Source:
    """Raises `InputError` with the file's name and the rule that it breaks."""
    try:
        data, _ = read_plain(path, _MAX_LINK_INFO_BYTES)
        return Source(parse_link_info(data, max_bytes=_MAX_LINK_INFO_BYTES), f"file {path}")
    except OSError as exc:
        raise InputError(f"{path} cannot be read: {exc.strerror}. Nothing was changed.") from exc
    except LinkInfoError as exc:
        raise InputError(f"{path} cannot be used: {exc.message} Nothing was changed.") from exc


def source_of(bundle: Bundle) -> Source:
    limits = f", limits {bundle.limits_version}" if bundle.limits_version is not None else ""
    return Source(bundle.links, f"configuration {bundle.version}{limits}")


def stored_source(settings: Settings) -> Source | None:
    """The agent's current bundle. Raises `StoreError`."""
    bundle = Store(settings.state_dir).load(host_id=settings.host_id)
    return source_of(bundle) if bundle is not None else None


def require_net_admin() -> None:
    """Say at once what the kernel would refuse later. Raises `NotPermittedError`."""
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff" and not int(value, 16) >> _CAP_NET_ADMIN & 1:
            raise NotPermittedError("Changing the kernel's traffic control needs root (CAP_NET_ADMIN); use sudo.")


# --- commands that change the kernel --------------------------------------------------------------------------------


def enforce_source(settings: Settings, engine: Engine, source: Source, *, verbose: bool = False) -> Outcome:
    """Enforce links that need no service. The caller holds the lock."""
    enforced = enforce_links(engine, source.links, settings)
    return _enforced_outcome(source, enforced, (), verbose=verbose)


def once(
    settings: Settings, engine: Engine, link_info: Path | None, make_client: MakeClient, *, verbose: bool = False
) -> Outcome:
    """One cycle: of the service and the stored bundle, or of a file alone."""
    require_net_admin()
    check_places(settings)
    with AgentLock(settings.run_dir, "once"):
        if link_info is not None:
            return enforce_source(settings, engine, links_from_file(link_info), verbose=verbose)
        client = make_client(settings)
        try:
            return _once_with_service(Agent(settings, engine, client, get_logger()), verbose=verbose)
        finally:
            if client is not None:
                client.close()


def _once_with_service(agent: Agent, *, verbose: bool) -> Outcome:
    agent.load()
    pulled = agent.pull()
    enforced = agent.enforce()
    agent.tell(even_if_old=True)
    if agent.bundle is None or enforced is None:
        if pulled.contact == "none" and {one.code for one in agent.problems} == {"not_enrolled"}:
            raise SettingsError(f"{NOT_ENROLLED} (or give --link-info FILE)")
        lines = [*problem_lines(agent.problems), "There is no configuration to enforce; the kernel was not touched."]
        return Outcome(NOT_DONE, err="\n".join(lines))
    delivery = [one for one in agent.problems if one not in enforced.problems]
    return _enforced_outcome(source_of(agent.bundle), enforced, delivery, verbose=verbose)


def _enforced_outcome(source: Source, enforced: Enforced, delivery: Sequence[Problem], *, verbose: bool) -> Outcome:
    good = sum(link.state == "enforced" for link in enforced.links)
    lines = [f"From {source.words}: {good} of {len(enforced.links)} limited links enforced."]
    if enforced.result is not None:
        lines += _changes(
            enforced.result, "Changed in the kernel:", "Nothing had to change in the kernel.", verbose=verbose
        )
    lines += ["", links_table(source.links, enforced.links), *timed_lines(source.links, enforced.observed_at)]
    errors = problem_lines((*delivery, *enforced.problems), enforced.links)
    if not enforced.ok:
        code = exit_code_of(enforced.error) if enforced.error is not None else NOT_DONE
    elif any(one.code in DELIVERY_CODES for one in delivery):
        code = NOTHING_NEW
        errors.append("The last good configuration is enforced; nothing newer could be had from the service.")
    else:
        code = OK
    return Outcome(code, "\n".join(lines), "\n".join(errors))


def _changes(result: CycleResult, heading: str, nothing: str, *, verbose: bool) -> list[str]:
    if result.plan.is_empty:
        return [nothing]
    return [heading, *(f"  {line}" for line in op_lines(result.plan.ops, verbose=verbose))]


def reset(
    settings: Settings,
    engine: Engine,
    make_client: MakeClient,
    *,
    reason: str | None = None,
    broken: SettingsError | None = None,
    verbose: bool = False,
) -> Outcome:
    """Remove everything of ours from the kernel, and tell the service; what is stored on disk stays."""
    require_net_admin()
    with AgentLock(settings.run_dir, "reset"):
        return reset_locked(settings, engine, make_client, reason=reason, broken=broken, verbose=verbose)


def reset_locked(
    settings: Settings,
    engine: Engine,
    make_client: MakeClient,
    *,
    reason: str | None = None,
    broken: SettingsError | None = None,
    verbose: bool = False,
) -> Outcome:
    """The same for a caller who holds the lock. `broken` says why the credentials cannot be used, if they cannot."""
    result = engine.reset(settings.engine())
    lines = _changes(result, "Removed from the kernel:", "There was nothing of ours in the kernel.", verbose=verbose)
    errors = problem_lines(result.problems)
    if result.ok:  # else something may still be enforced
        untold = broken.message if broken is not None else send_removed(settings, make_client, reason or OPERATOR)
        if untold is not None:
            errors.append(f"The service was not told that the limits are removed: {untold}")
    return Outcome(OK if result.ok else NOT_DONE, "\n".join(lines), "\n".join(errors))


# --- what the service may say ---------------------------------------------------------------------------------------


def enrol(
    settings: Settings, url: str, ask_for_token: Callable[[], str], credentials: Path | None, *, replaces: bool
) -> Outcome:
    """Turn a one-time token into this host's credentials. Raises `AgentError`."""
    path = credentials or settings.credentials_file or DEFAULT_CREDENTIALS
    token = enrolment.parse_token(ask_for_token())
    return Outcome(OK, "\n".join(enrolment.words(enrolment.enrol(url, token, settings, path, replaces=replaces))))


def accept(settings: Settings) -> Outcome:
    """Let the agent, also one that runs, take the configuration that it holds back because links vanished."""
    store = Store(settings.state_dir)
    bundle, hold = store.load(host_id=settings.host_id), store.load_hold()
    newest = _trust(store, settings, bundle).newest
    if bundle is None or newest is None or hold is None or hold.in_force != bundle.name:
        return Outcome(NOT_DONE, err="There is nothing to accept: no configuration is held back here.")
    store.save_acceptance(Acceptance(hold.offered, newest))
    return Outcome(
        OK,
        f"Configuration {hold.offered}, which lacks {hold.missing} of the {hold.limited} limited links in force, will "
        f"be taken when the service offers it next (within {settings.backoff_max_s:g} s; `systemctl reload {SERVICE}` "
        "asks at once).",
    )


def accept_older(settings: Settings, version: str) -> Outcome:
    """Let the agent, also one that runs, take configuration `version` (G.H) once, although a newer one is installed."""
    match = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})", version, flags=re.ASCII)
    if match is None:
        raise SettingsError(f'"{version}" is no version; write it as the problem shows it, for example 1.18.', key="")
    store = Store(settings.state_dir)
    newest = _trust(store, settings, store.load(host_id=settings.host_id)).newest
    # With the same G.H it may be the limits that are older, and only the bundle will tell.
    if newest is None or (int(match[1]), int(match[2])) > newest[:2]:
        installed = f"{newest} is installed here" if newest is not None else "no configuration is installed here"
        return Outcome(NOT_DONE, err=f"Nothing to accept: {installed}, so {version} would be taken anyway.")
    version = f"{int(match[1])}.{int(match[2])}"
    store.save_acceptance(Acceptance(version, newest))
    return Outcome(
        OK,
        f"Configuration {version} will be taken once, in place of {newest}, when the service offers it next (at the "
        f"latest in {settings.backoff_max_s:g} s; `systemctl reload {SERVICE}` asks at once).",
    )


# --- commands that only look ----------------------------------------------------------------------------------------


def plan(
    settings: Settings,
    engine: Engine,
    link_info: Path | None,
    make_client: MakeClient,
    *,
    as_json: bool = False,
    verbose: bool = False,
) -> Outcome:
    """What `once` would change. Touches neither kernel nor disk; asks the service only with GET."""
    problems: list[Problem] = []
    source = links_from_file(link_info) if link_info is not None else _newest(settings, make_client, problems)
    if source is None:
        if not problems:
            raise SettingsError(f"{NOT_ENROLLED} (or give --link-info FILE)")
        return Outcome(NOT_DONE, err="\n".join([*problem_lines(problems), "There is no configuration to plan with."]))
    result = engine.plan_cycle(links_at(source.links, datetime.now(UTC)), settings.engine())
    in_the_way = [*problems, *result.problems]
    code = NOTHING_NEW if problems else OK
    if not result.ok:
        code = NOT_DONE
    if as_json:
        document = {
            "source": source.words,
            "plan": result.plan.to_json(),
            "problems": [asdict(one) for one in in_the_way],
        }
        return Outcome(code, json.dumps(document, indent=1))
    lines = [f"From {source.words}."]
    heading = f"Would change in the kernel ({len(result.plan.ops)} operations):"
    lines += _changes(result, heading, "Nothing would change.", verbose=verbose)
    return Outcome(code, "\n".join(lines), "\n".join(problem_lines(in_the_way)))


def _newest(settings: Settings, make_client: MakeClient, problems: list[Problem]) -> Source | None:
    """What the service has now, else what is stored; nothing is stored here."""
    store = Store(settings.state_dir)
    bundle: Bundle | None = None
    try:
        bundle = store.load(host_id=settings.host_id)
    except AgentError as exc:
        problems.append(problem_of(exc, str(settings.state_dir)))
    client = make_client(settings)
    if client is not None:
        client.use_secret(bundle.host_secret if bundle is not None else None)
        try:
            answer = client.fetch_config(Have.of(bundle))
            if isinstance(answer, NewBundle):
                trust = _trust(store, settings, bundle)
                offered = accept_bundle(answer.data, settings, trust, store.load_acceptance, datetime.now(UTC))
                _refuse_if_held(store, bundle, offered, trust)
                bundle = offered
                problems.clear()
            elif isinstance(answer, NoAS):
                problems.append(no_as_problem(settings))
        except AgentError as exc:
            problems.append(problem_of(exc, settings.url or ""))
        finally:
            client.close()
    return source_of(bundle) if bundle is not None else None


def _refuse_if_held(store: Store, in_force: Bundle | None, offered: Bundle, trust: Trust) -> None:
    """Raises `TrustError` for what the agent would hold back now."""

    def accepted() -> bool:
        return is_accepted(offered.order, trust.newest, store.load_acceptance())

    hold = hold_for(in_force, offered, store.load_hold(), uptime(), is_accepted=accepted)
    if hold is not None:
        raise hold.error


def _trust(store: Store, settings: Settings, bundle: Bundle | None) -> Trust:
    """What counts now, as the agent would see it at its next start. Changes nothing."""
    try:
        stored = store.load_trust()
    except StoreError:  # the agent repairs it
        stored = None
    return trust_now(settings, stored, bundle)


def show(settings: Settings, engine: Engine, source: Source | None, *, as_json: bool) -> Outcome:
    """What the kernel has now for each limited link."""
    if source is None:
        hint = "No configuration was stored yet, so there are no links to look for; give --link-info FILE."
        return Outcome(NOT_DONE, err=hint if settings.url is not None else f"{NOT_ENROLLED}\n{hint}")
    now = datetime.now(UTC)
    states = engine.read_links(settings.engine(), links_at(source.links, now))
    code = OK if all(one.state == "enforced" for one in states) else NOT_DONE
    if as_json:
        return Outcome(code, json.dumps({"source": source.words, "links": _states_json(states)}, indent=1))
    lines = [f"In the kernel now, for the links of {source.words}:", "", links_table(source.links, states)]
    lines += timed_lines(source.links, now)
    return Outcome(code, "\n".join(lines), "\n".join(problem_lines((), states)))


def _states_json(states: tuple[LinkState, ...]) -> dict[str, Any]:
    return {str(one.interface_id): link_fields(one) for one in states}


def usage(settings: Settings, *, as_json: bool) -> Outcome:
    """What each link used lately, as the running agent last counted it."""
    folder = settings.state_dir / FOLDER
    try:
        report = read_report(folder)
    except PermissionError:
        return Outcome(NOT_PERMITTED, err=f"{folder} cannot be read; run this as root.")
    except OSError as exc:
        return Outcome(NOT_DONE, err=f"{folder} cannot be read: {exc.strerror}.")
    if report is None:
        return Outcome(
            NOT_DONE, err=f"Nothing was counted yet: there is no sample in {folder} (the agent must run, with links)."
        )
    if as_json:
        return Outcome(OK, json.dumps(report.to_json(), indent=1))
    age_s = datetime.now(UTC).timestamp() - report.at_ms / 1000
    heading = f"Counted {ago(age_s)}, configuration {report.version}:"
    return Outcome(OK, "\n".join([heading, "", *table(report)]))


def status(settings: Settings, *, as_json: bool) -> Outcome:
    """The health file in words; the exit code says how it is."""
    running = is_running(settings.run_dir)
    try:
        health = read_health(settings.run_dir)
        if health is None:
            return Outcome(
                NOT_DONE, err=f"The agent has not reported yet: there is no health file in {settings.run_dir}."
            )
        lines, enforced, delivered = describe(health, running=running, now=datetime.now(UTC))
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else exc
        return Outcome(NOT_DONE, err=f"The health file in {settings.run_dir} cannot be used: {why}.")
    except (KeyError, TypeError):
        text = "it is no health file of this agent"
        return Outcome(NOT_DONE, err=f"The health file in {settings.run_dir} cannot be used: {text}.")
    code = NOT_DONE if not enforced else OK if delivered else NOTHING_NEW
    if as_json:
        return Outcome(code, json.dumps({**health, "is_running": running}, indent=1))
    return Outcome(code, "\n".join(lines))
