"""What is never limited without a port, because that would cut the host off."""

from __future__ import annotations

import socket
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from ap_agent.common.settings import Settings
from ap_agent.dataplane.devices import Host
from ap_agent.limiter.protecting import Peer, logged_in_from, peers, protected, refused
from contract.link_info import check_link_info
from tests.agent_bundles import entry

HERE = Host((), {}, frozenset({ip_address("192.0.2.1")}))
LINKS = check_link_info(
    {
        str(number): {key: value for key, value in entry(500, ip).items() if has_port or key != "Port"}
        for number, (ip, has_port) in enumerate(
            [
                ("192.0.2.1", False),
                ("192.0.2.1", True),
                ("198.51.100.7", False),
                ("203.0.113.9", False),
                ("2001:db8::9", False),
                ("192.0.2.99", False),
            ],
            start=1,
        )
    }
)
PORTLESS = [number for number, one in LINKS.items() if one.remote_port is None]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(url="https://198.51.100.7/api", state_dir=tmp_path, protect=(ip_network("2001:db8::/64"),))


def test_gateway_service_log_ins_and_networks_of_the_operator_are_named_and_the_rest_goes_on(
    settings: Settings,
) -> None:
    special = protected(settings, HERE, [], [ip_address("203.0.113.9")])
    found = refused(PORTLESS, LINKS, settings, special)
    assert {number: one.message.partition("that is ")[2].partition(", and")[0] for number, one in found.items()} == {
        1: "the default gateway of this host",
        3: "the address of the service",
        4: "where somebody is logged in from",
        5: "in `protect`",
    }
    assert {one.code for one in found.values()} == {"protected_address"}
    assert found[1].subject == "link 1"


@pytest.mark.parametrize(
    ("port", "is_agents", "is_protected"), [(443, True, True), (80, True, False), (443, False, False)]
)
def test_the_service_is_where_the_agent_is_connected(
    settings: Settings, port: int, is_agents: bool, is_protected: bool
) -> None:
    named = replace(settings, url="https://service.example")
    uid = settings.state_dir.stat().st_uid + (not is_agents)
    peer = Peer(ip_address("192.0.2.99"), port, uid)
    assert (ip_address("192.0.2.99") in protected(named, HERE, [peer], [])) is is_protected


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_connections_are_read_as_the_kernel_tells_them(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = "::" if address.startswith("::f") else address
    with socket.socket(family) as listener, socket.socket(family) as client:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0) if family == socket.AF_INET6 else None
        listener.bind((bound, 0))
        listener.listen()
        port = listener.getsockname()[1]
        client.connect((address, port))
        shown = ip_address(address.removeprefix("::ffff:"))
        assert any((one.address, one.port) == (shown, port) for one in peers())


def test_sessions_of_logind_are_read_and_damaged_ones_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("UID=1000\nREMOTE=1\nREMOTE_HOST=203.0.113.9\nSERVICE=sshd\n")
    (tmp_path / "2").write_text("REMOTE=1\nREMOTE_HOST=fe80::1%eth0\n")
    (tmp_path / "3").write_text("REMOTE=1\nREMOTE_HOST=host.example\n")
    (tmp_path / "4").write_bytes(b"\xff\n=")
    (tmp_path / "5").write_text("UID=0\nREMOTE=0\n")
    assert set(logged_in_from(tmp_path)) == {ip_address("203.0.113.9"), ip_address("fe80::1")}
    assert list(logged_in_from(tmp_path / "none")) == []
