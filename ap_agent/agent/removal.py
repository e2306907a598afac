"""The last receipt of a host whose limits were removed: without it the service's pages would say "enforced" until the
host's last report is out of date.

It is sent once, within a few seconds or not at all: whoever removes the limits, or the package, does not wait for a
service that is away.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ap_agent.agent.receipt import build_receipt
from ap_agent.agent.store import Store
from ap_agent.common import threads
from ap_agent.common.errors import AgentError
from ap_agent.common.settings import Settings
from ap_agent.model import Problem

if TYPE_CHECKING:
    from ap_agent.agent.cycle import Client

WITHIN_S = 5.0  # altogether, name resolution included, which no timeout of a connection covers
_CONNECT_S, _READ_S, _DEADLINE_S = 2.0, 3.0, 4.0

OPERATOR = "The operator of this host removed the limits."


def send_removed(settings: Settings, make_client: Callable[[Settings], Client | None], reason: str) -> str | None:
    """Tell the service that nothing is enforced here, and why. Returns None when it knows or there is no service, and
    otherwise the reason why it was not told. Never raises an `AgentError`; lasts `WITHIN_S` at most."""
    bounded = replace(
        settings,
        connect_timeout_s=min(settings.connect_timeout_s, _CONNECT_S),
        read_timeout_s=min(settings.read_timeout_s, _READ_S),
        fetch_deadline_s=min(settings.fetch_deadline_s, _DEADLINE_S),
    )
    is_over = threading.Event()
    outcome: list[str | None] = [f"There was no answer within {WITHIN_S:g} s."]

    def send() -> None:
        try:
            outcome[0] = _send(bounded, make_client, reason)
        except AgentError as exc:
            outcome[0] = exc.message
        finally:
            is_over.set()

    try:
        threads.start("last receipt", send)
    except AgentError as exc:
        return exc.message
    is_over.wait(WITHIN_S)
    return outcome[0]


def _send(settings: Settings, make_client: Callable[[Settings], Client | None], reason: str) -> str | None:
    client = make_client(settings)
    if client is None:
        return None
    try:
        client.use_secret(_stored_secret(settings))
        answer = client.send_receipt(_receipt(reason))
    finally:
        client.close()
    return None if answer.is_stored else "The service did not store the receipt, because it has a newer one."


def _stored_secret(settings: Settings) -> str | None:
    """The service may have changed the secret since the enrolment; without a stored one the enrolled one is tried."""
    try:
        bundle = Store(settings.state_dir).load(host_id=settings.host_id)
    except AgentError:
        return None
    return bundle.host_secret if bundle is not None else None


def _receipt(reason: str) -> dict[str, object]:
    return build_receipt(
        version=None,
        limits_version=None,
        limits_digest=None,
        observed_at=datetime.now(UTC),
        writes=0,
        links=(),
        problems=[Problem("limits_removed", "agent", reason)],
        run=secrets.token_hex(16),
        number=1,
        clock_skew_ms=None,
    )
