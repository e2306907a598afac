"""One receipt and no more: `scionlab-bw-agent tell`, for who removed the limits or the package, when no agent runs.

Without it the service's pages would say "enforced" until the host's last report is out of date. It is sent within a few
seconds or not at all: nobody who removes a package waits for a service that is away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import Client
from ap_agent.common import threads
from ap_agent.common.errors import AgentError
from ap_agent.common.log import Logger
from ap_agent.common.settings import Settings

WITHIN_S = 5.0  # altogether, name resolution included, which no timeout of a connection covers
_CONNECT_S, _READ_S, _DEADLINE_S = 2.0, 3.0, 4.0


def tell(settings: Settings, make_client: Callable[[Settings], Client | None], logger: Logger) -> str | None:
    """Send what the limiter said last. Returns None when the service knows it or there is no service, and otherwise
    why it was not told. Changes nothing on the disk. Never raises an `AgentError`; lasts `WITHIN_S` at most."""
    bounded = replace(
        settings,
        connect_timeout_s=min(settings.connect_timeout_s, _CONNECT_S),
        read_timeout_s=min(settings.read_timeout_s, _READ_S),
        fetch_deadline_s=min(settings.fetch_deadline_s, _DEADLINE_S),
        confirm_config=False,
    )
    is_over = threading.Event()
    outcome: list[str | None] = [f"There was no answer within {WITHIN_S:g} s."]

    def send() -> None:
        try:
            outcome[0] = _send(bounded, make_client, logger)
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


def _send(settings: Settings, make_client: Callable[[Settings], Client | None], logger: Logger) -> str | None:
    client = make_client(settings)
    if client is None:
        return None
    try:
        agent = Agent(settings, client, logger)
        agent.configuration.read()
        agent.limiter.read()
        error = agent.tell()
    finally:
        client.close()
    return error.message if error is not None else None
