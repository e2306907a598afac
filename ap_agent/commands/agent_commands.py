"""What each command of `scionlab-bw-agent` does, as a function from settings to an `Outcome`. None touches a kernel."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from ap_agent.agent import enrol as enrolment
from ap_agent.agent.agent import Agent
from ap_agent.agent.agent import tell as send_last_receipt
from ap_agent.agent.fetch import Client
from ap_agent.agent.health import describe, is_running, read_health
from ap_agent.agent.problems import DELIVERY_CODES
from ap_agent.agent.run import check_places
from ap_agent.agent.store import Store
from ap_agent.commands.show import show_state
from ap_agent.common.credentials import DEFAULT_CREDENTIALS
from ap_agent.common.errors import AgentError, SettingsError, StoreError
from ap_agent.common.lock import Lock, holder, lock_path
from ap_agent.common.log import get_logger
from ap_agent.common.outcome import NOT_DONE, NOTHING_NEW, OK, Outcome
from ap_agent.common.ownership import as_owner_of
from ap_agent.common.settings import Settings
from ap_agent.common.text import ago, problem_lines
from ap_agent.document.state import read_state
from ap_agent.document.trust import NOT_ENROLLED, Acceptance, Trust, load_trust, save_acceptance, trust_now
from ap_agent.usage.spool import FILE_NAME as SPOOL
from ap_agent.usage.table import read_report, table
from bandwidth_config import LinkInfo

MakeClient = Callable[[Settings], Client | None]
_LIMITER_ANSWERS_S = 30.0  # the first limits of 4000 links take 3 s, on a machine that is ten times slower too
_RELOAD = "`systemctl reload scionlab-bw-agent` asks at once"


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
    newest = _trust(settings, store).newest
    if bundle is None or newest is None or hold is None or hold.in_force != bundle.name:
        return Outcome(NOT_DONE, err="There is nothing to accept: no configuration is held back here.")
    _save_acceptance(settings.state_dir, Acceptance(hold.offered, newest))
    return Outcome(
        OK,
        f"Configuration {hold.offered}, which lacks {hold.missing} of the {hold.limited} limited links in force, will "
        f"be taken when the service offers it next (within {settings.backoff_max_s:g} s; {_RELOAD}).",
    )


def accept_older(settings: Settings, version: str) -> Outcome:
    """Let agent and limiter, also while they run, take configuration `version` (G.H) once in place of a newer one."""
    match = re.fullmatch(r"([0-9]{1,18})\.([0-9]{1,18})", version, flags=re.ASCII)
    if match is None:
        raise SettingsError(f'"{version}" is no version; write it as the problem shows it, for example 1.18.', key="")
    newest = _trust(settings, Store(settings.state_dir)).newest
    limiters = _stored_trust(settings.limiter_state_dir)
    # With the same G.H it may be the limits that are older, and only the bundle will tell.
    if newest is None or (int(match[1]), int(match[2])) > newest[:2]:
        installed = f"{newest} is installed here" if newest is not None else "no configuration is installed here"
        return Outcome(NOT_DONE, err=f"Nothing to accept: {installed}, so {version} would be taken anyway.")
    version = f"{int(match[1])}.{int(match[2])}"
    _save_acceptance(settings.state_dir, Acceptance(version, newest))
    if limiters is not None and limiters.newest is not None:
        _save_acceptance(settings.limiter_state_dir, Acceptance(version, limiters.newest))
    return Outcome(
        OK,
        f"Configuration {version} will be taken once, in place of {newest}, when the service offers it next (at the "
        f"latest in {settings.backoff_max_s:g} s; {_RELOAD}).",
    )


def _save_acceptance(folder: Path, acceptance: Acceptance) -> None:
    try:
        with as_owner_of(folder):
            save_acceptance(folder, acceptance)
    except OSError as exc:
        raise StoreError(f"{folder} cannot be written: {exc.strerror}. Run as root.") from exc


def _trust(settings: Settings, store: Store) -> Trust:
    """What counts now, as the agent would see it at its next start. Changes nothing."""
    return trust_now(settings, _stored_trust(settings.state_dir), store.load(host_id=settings.host_id))


def _stored_trust(folder: Path) -> Trust | None:
    try:
        return load_trust(folder)
    except StoreError:  # its owner repairs it
        return None


# --- one cycle by hand ----------------------------------------------------------------------------------------------


def once(settings: Settings, make_client: MakeClient) -> Outcome:
    """Ask the service once, hand over, wait for the limiter's answer, tell the service."""
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
            agent.tell()
        finally:
            agent.hang_up()
    problems = agent.problems
    if bundle is None:
        lines = [*problem_lines(problems), "There is no configuration to hand over; nothing was changed."]
        return Outcome(NOT_DONE, err="\n".join(lines))
    if not heard:
        said = f"The limiter has not answered within {_LIMITER_ANSWERS_S:g} s; configuration {bundle.version} is there."
        return Outcome(NOT_DONE, err="\n".join([*problem_lines(problems), said]))
    shown = show(settings)
    code = shown.exit_code
    if code == OK and any(one.code in DELIVERY_CODES for one in problems):
        code = NOTHING_NEW
    delivery = problem_lines(one for one in problems if agent.limiter.state and one not in agent.limiter.state.problems)
    return Outcome(code, shown.out, "\n".join([*delivery, *([shown.err] if shown.err else [])]))


def tell(settings: Settings, make_client: MakeClient) -> Outcome:
    """Send one receipt of what the limiter said last, within seconds or not at all: after `reset`, and at a removal."""
    if settings.url is None:
        return Outcome(OK, "There is no service to tell.")
    untold = send_last_receipt(settings, make_client, get_logger())
    if untold is not None:
        return Outcome(NOT_DONE, err=f"The service was not told: {untold}")
    return Outcome(OK, "The service was told what the limiter says.")


# --- commands that only look ----------------------------------------------------------------------------------------


def show(settings: Settings, *, as_json: bool = False, verbose: bool = False) -> Outcome:
    """What the limiter says of the kernel."""
    state = read_state(settings.limiter_run_dir)
    if state is None:
        return Outcome(
            NOT_DONE,
            err=f"The limiter has written nothing yet in {settings.limiter_run_dir}; start scionlab-bw-limiter.",
        )
    running = holder(lock_path(settings.limiter_run_dir, "limiter")) is not None and state.is_running
    links = _stored_links(settings)
    return show_state(settings, state, links, is_running=running, as_json=as_json, verbose=verbose)


def _stored_links(settings: Settings) -> Mapping[int, LinkInfo]:
    """Names and addresses for the table; nothing of them where the bundle is not for our eyes."""
    try:
        bundle = Store(settings.state_dir).load(host_id=settings.host_id)
    except AgentError:
        return {}
    return bundle.links if bundle is not None else {}


def usage(settings: Settings, *, as_json: bool) -> Outcome:
    """What each link used lately, as the running agent last counted it."""
    report = read_report(settings.state_dir / SPOOL)
    if report is None:
        text = f"Nothing was counted yet: there is no sample in {settings.state_dir} (the agent must run, with links)."
        return Outcome(NOT_DONE, err=text)
    if as_json:
        return Outcome(OK, json.dumps(report.to_json(), indent=1))
    age = timedelta(seconds=datetime.now(UTC).timestamp() - report.at_ms / 1000)
    heading = f"Counted {ago(age)}, configuration {report.version}:"
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
