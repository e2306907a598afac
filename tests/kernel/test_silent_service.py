"""A question that waits at a service which is cut off without a word, as by a NAT box: no reset, no end.

client ── eth0   br0   eth0 ── server        the server's cable is pulled at the switch
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ap_agent.agent import connections as web
from ap_agent.agent.fetch import Client, Have
from ap_agent.common.errors import FetchError
from ap_agent.common.settings import Settings
from measuring.netns import Namespace
from tests.support.namespaces import a_lab

PREFIX = "slbwkq"


@dataclass
class Wire:
    """Two hosts at a switch, and how to pull the server's cable there."""

    client: Namespace
    switch: Namespace
    port: str
    listener: socket.socket

    def ask(self, wait_s: int) -> object:
        settings = Settings(url="http://192.0.2.2:8000", host_id="h", host_secret="s")
        client = Client(settings)
        return self.client.call(lambda: client.fetch_config(Have("1.18", 7, "d" * 64), wait_s=wait_s))


@pytest.fixture
def wire() -> Iterator[Wire]:
    with a_lab(PREFIX) as lab:
        client, server = lab.namespace("client"), lab.namespace("server")
        switch = lab.switch("switch")
        switch.plug(client.nic("eth0", "192.0.2.1/24"))
        port = switch.plug(server.nic("eth0", "192.0.2.2/24"))
        with server.call(lambda: socket.create_server(("192.0.2.2", 8000))) as listener:
            yield Wire(client, switch.namespace, port, listener)


@pytest.fixture
def _quicker_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same options with 1 s in place of 10 and 5, and 2 s in place of 20: half a minute is long for a test."""
    shorter = {socket.TCP_KEEPIDLE: 1, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 2, socket.TCP_USER_TIMEOUT: 2000}
    options = [
        (level, name, shorter.get(name, value) if level == socket.IPPROTO_TCP else value)
        for level, name, value in web._SOCKET_OPTIONS
    ]
    monkeypatch.setattr(web, "_SOCKET_OPTIONS", options)


@pytest.mark.usefixtures("_quicker_probes")
def test_connection_that_died_without_a_word_is_noticed_long_before_its_wait_is_over(wire: Wire) -> None:
    def pull_when_asked() -> None:
        connection, _ = wire.listener.accept()
        with connection:
            connection.recv(65536)
            wire.switch.ip("link", "set", wire.port, "down")
            connection.settimeout(20)
            with contextlib.suppress(OSError):  # nobody tells this end that the cable was pulled
                connection.recv(1)

    threading.Thread(target=pull_when_asked, daemon=True).start()
    with pytest.raises(FetchError, match="does not answer TCP keepalive probes") as failed:
        wire.ask(wait_s=50)
    assert failed.value.retryable
