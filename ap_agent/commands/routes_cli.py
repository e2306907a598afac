"""`scionlab-bw-agent routes`: its actions, as text and JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path

from ap_agent.agent.fetch import Have, make_client
from ap_agent.agent.settings import load_settings
from ap_agent.agent.store import Store, stored_links
from ap_agent.common.errors import AgentError, StoreError
from ap_agent.common.lock import Lock
from ap_agent.common.outcome import NOT_DONE, OK, Outcome, print_outcome
from ap_agent.common.problem import Problem
from ap_agent.common.rights import require_rights
from ap_agent.common.settings import Settings, settings_without_enrolment
from ap_agent.common.text import problem_lines
from ap_agent.routes import kernel, report, trial
from ap_agent.routes.plan import (
    Goal,
    Operation,
    Present,
    conflicts_of,
    goal_of,
    plan,
    problems_of,
)
from ap_agent.routes.uplinks import Uplink, UplinksError, read_uplinks
from ap_agent.routes.verify import watch

_LOOK_AGAIN_S = 0.2
_PROBE_S = 5.0  # timeout of a request to the service while a change waits: several fit into the time
_UNCHANGED = "The kernel is up to date."
_COMMAND = "`scionlab-bw-agent routes confirm`"


def routes(given: argparse.Namespace, environment: Mapping[str, str]) -> Outcome:
    """Run one action. Raises `AgentError`."""
    settings = settings_without_enrolment(given.config, environment)
    if given.action == "plan":
        return _plan(settings, given)
    if given.action == "show":
        return _show(settings, given)
    if given.action == "verify":
        return _verify(settings, given)
    require_rights("CAP_NET_ADMIN", what="routes")
    if given.action == "guard":
        trial.guard(settings.routes_dir, lambda: _is_service_reached(given.config, environment))
        return Outcome(OK)
    if given.action in {"confirm", "rollback"}:
        return _conclude(settings, given.action)
    return _change(settings, given, environment)


# --- changing -------------------------------------------------------------------------------------------------------


def _plan(settings: Settings, given: argparse.Namespace) -> Outcome:
    uplinks, _ = read_uplinks(settings.uplinks_file)
    present = kernel.read()
    problems = (*problems_of(uplinks, present).values(), *conflicts_of(uplinks, present))
    operations = plan(present, goal_of(uplinks, present)) if not problems else ()
    return _said(operations, problems, settings.uplinks_file, given)


def _change(settings: Settings, given: argparse.Namespace, environment: Mapping[str, str]) -> Outcome:
    """`apply` and `remove`."""
    folder, is_boot = settings.routes_dir, given.action == "apply" and given.boot
    file = trial.confirmed_path(folder) if is_boot else settings.uplinks_file
    with Lock(folder, "routes", given.action):
        _require_no_trial(folder)
        uplinks, text = read_uplinks(file) if given.action == "apply" else ((), None)
        present = kernel.read()
        not_ready = problems_of(uplinks, present)
        problems = conflicts_of(uplinks, present)
        if problems or (not_ready and not is_boot):
            return _said((), (*not_ready.values(), *problems), file, given)
        goal = goal_of([one for one in uplinks if one.name not in not_ready], present)
        operations = plan(present, goal)
        begun = None
        if operations and given.confirm_within is not None:
            before = Goal(present.rules, present.routes)
            begun = trial.new_trial(before, text, given.confirm_within, is_by_hand=given.by_hand)
            _begin(folder, begun, given, environment)
        _carry_out(folder, operations, present, goal)
        if begun is not None:
            trial.made(folder, begun)
        elif not is_boot:
            trial.keep_for_boot(folder, text)
    said = _said(operations, tuple(not_ready.values()), file, given, is_done=True)
    return said if begun is None else _wait(settings, given, environment, said)


def _require_no_trial(folder: Path) -> None:
    waiting = trial.load(folder)
    if waiting is not None and waiting.is_waiting:
        raise AgentError(f"{_waiting_words(folder, waiting)} Nothing was changed.")


def _carry_out(folder: Path, operations: tuple[Operation, ...], present: Present, goal: Goal) -> None:
    """Apply and read back; undo everything if an operation is rejected."""
    try:
        kernel.carry_out(operations, present)
        after = kernel.read()
        left = plan(after, goal)
        if left:
            raise AgentError(f"The kernel does not have all changes; still missing: {left[0]}.")
    except AgentError as exc:
        now = kernel.read()
        refused = kernel.carry_out(plan(now, Goal(present.rules, present.routes)), now, until_refused=False)
        begun = trial.load(folder)
        if begun is not None and begun.is_waiting:
            trial.save(folder, replace(begun, state="rolled_back", ended_by="the kernel refused the change"))
        end = f" It could not be undone either: {'; '.join(refused)}." if refused else " It was undone."
        raise type(exc)(f"{exc.message}{end}") from exc


def _conclude(settings: Settings, action: str) -> Outcome:
    folder = settings.routes_dir
    with Lock(folder, "routes", action):
        found = trial.load(folder)
        if found is None:
            return Outcome(NOT_DONE, err=f"Nothing to {action}: no change waits for its confirmation.")
        if not found.is_waiting:
            return Outcome(NOT_DONE, err=f"Nothing to {action}: {_ended_words(found)}")
        ended = trial.conclude(folder, by="the operator", confirms=action == "confirm")
    return _ended(ended or found, is_wanted=True)


# --- a change that waits --------------------------------------------------------------------------------------------


def _begin(folder: Path, begun: trial.Trial, given: argparse.Namespace, environment: Mapping[str, str]) -> None:
    trial.save(folder, begun)
    try:
        _start_guard(folder, given, environment)
    except AgentError:
        trial.save(folder, replace(begun, state="rolled_back", ended_by="nothing was changed"))
        raise


def _start_guard(folder: Path, given: argparse.Namespace, environment: Mapping[str, str]) -> None:
    config = ["--config", os.path.abspath(given.config)] if given.config is not None else []  # noqa: PTH100  # no links resolved
    trial.start_guard(folder, ["routes", "guard", *config], environment)


def _wait(settings: Settings, given: argparse.Namespace, environment: Mapping[str, str], said: Outcome) -> Outcome:
    """Wait until the change is confirmed or rolled back."""
    folder = settings.routes_dir
    found = trial.load(folder)
    if found is not None and found.is_waiting:
        unless = "" if given.by_hand else ", unless the Coordination Service is reached"
        words = f"Rolled back in {found.left_s:.0f} s{unless}. To keep it: {_COMMAND}"
        print_outcome(Outcome(OK, "" if given.json else said.out, words))
    try:
        while (found := trial.load(folder)) is not None and found.is_waiting:
            if not trial.is_guarded(folder):  # it was killed
                _start_guard(folder, given, environment)
            time.sleep(_LOOK_AGAIN_S)
    except KeyboardInterrupt:
        return Outcome(NOT_DONE, err=f"The change still waits for {_COMMAND}, and is rolled back without it.")
    if found is None:
        raise StoreError(f"The file of the change in {folder} was deleted; see `routes show`.")
    ended = _ended(found, is_wanted=found.state == "confirmed")
    if not given.json:
        return ended
    document = {**json.loads(said.out), "state": found.state, "ended_by": found.ended_by, "refused": found.refused}
    return Outcome(ended.exit_code, json.dumps(document, indent=1))


def _ended(found: trial.Trial, *, is_wanted: bool) -> Outcome:
    refused = "".join(f"\nNot undone: {one}." for one in found.refused)
    words = _ended_words(found)
    sentence = f"{words[:1].upper()}{words[1:]}{refused}"
    return Outcome(OK, sentence) if is_wanted and not refused else Outcome(NOT_DONE, err=sentence)


def _ended_words(found: trial.Trial) -> str:
    what = "confirmed" if found.state == "confirmed" else "rolled back"
    return f"the change was {what} at {found.ended_at or 'once'} ({found.ended_by})."


def _waiting_words(folder: Path, waiting: trial.Trial) -> str:
    if trial.is_guarded(folder):
        return (
            f"A change is rolled back in {waiting.left_s:.0f} s. Run {_COMMAND} to keep it, or `routes rollback` to "
            "undo it now."
        )
    return (
        "A change was not confirmed, and the process that would roll it back was killed. Run `routes rollback` to undo "
        f"it, or {_COMMAND} to keep it."
    )


def _is_service_reached(config: Path | None, environment: Mapping[str, str]) -> bool:
    try:
        settings = load_settings(config, environment)
        quick = replace(settings, connect_timeout_s=_PROBE_S, read_timeout_s=_PROBE_S, fetch_deadline_s=_PROBE_S)
        client = make_client(quick)
        if client is None:
            return False
        with contextlib.closing(client):
            bundle = Store(settings.state_dir).load(host_id=settings.host_id)
            client.use_secret(bundle.host_secret if bundle is not None else None)
            client.fetch_config(Have.of(bundle))
    except AgentError:
        return False
    return True


# --- reading --------------------------------------------------------------------------------------------------------


def _said(
    operations: Iterable[Operation],
    problems: tuple[Problem, ...],
    file: Path,
    given: argparse.Namespace,
    *,
    is_done: bool = False,
) -> Outcome:
    lines = [str(one) for one in operations]
    code = NOT_DONE if problems else OK
    if given.json:
        document = {"source": str(file), "operations": lines, "problems": [asdict(one) for one in problems]}
        return Outcome(code, json.dumps({**document, "is_done": is_done}, indent=1))
    end = f"{len(lines)} operations in the kernel; no foreign object is touched." if lines else _UNCHANGED
    if problems and not is_done:
        return Outcome(code, err="\n".join([*problem_lines(problems), "Nothing was changed."]))
    return Outcome(code, "\n".join([*lines, end]), "\n".join(problem_lines(problems)))


def _show(settings: Settings, given: argparse.Namespace) -> Outcome:
    """Show rules and routes, whether they match the file, and the links that use them."""
    present = kernel.read()
    problems: list[Problem] = []
    uplinks: tuple[Uplink, ...] = ()
    try:
        uplinks, _ = read_uplinks(settings.uplinks_file)
        not_ready = problems_of(uplinks, present)
        problems += [*not_ready.values(), *conflicts_of(uplinks, present)]
        differs = plan(present, goal_of([one for one in uplinks if one.name not in not_ready], present))
        if differs:
            text = f"{len(differs)} operations are needed to match {settings.uplinks_file}; see `routes plan`."
            problems.append(Problem("routes_differ", "kernel", text))
    except UplinksError as exc:
        problems.append(Problem("uplinks_invalid", "uplinks", exc.message))
    waiting = trial.load(settings.routes_dir)
    if waiting is not None and waiting.is_waiting:
        problems.append(Problem("routes_waiting", "kernel", _waiting_words(settings.routes_dir, waiting)))
    sysctls = {one.dev: kernel.sysctls(one.dev) for one in uplinks if one.dev in present.devices}
    document = report.show_document(
        uplinks, present, stored_links(settings.state_dir, host_id=settings.host_id), sysctls, problems
    )
    code = NOT_DONE if problems else OK
    if given.json:
        return Outcome(code, json.dumps(document, indent=1))
    return Outcome(code, "\n".join(report.show_lines(document)), "\n".join(problem_lines(problems)))


def _verify(settings: Settings, given: argparse.Namespace) -> Outcome:
    uplinks, _ = read_uplinks(settings.uplinks_file)
    links = stored_links(settings.state_dir, host_id=settings.host_id)
    remotes = {one.name: [link.remote_ip for link in report.links_of(one, links).values()] for one in uplinks}
    verdicts = watch(uplinks, given.for_s, remotes)
    document = report.verify_document(verdicts, given.for_s)
    code = OK if all(one.is_right for one in verdicts) else NOT_DONE
    return Outcome(code, json.dumps(document, indent=1) if given.json else "\n".join(report.verify_lines(document)))
