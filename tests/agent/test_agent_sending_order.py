"""What the sending end of a test is told, on hosts that have the link's addresses and on others."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

from ap_agent.agent import sending_order
from ap_agent.agent.sending_order import order_of
from contract.link_info import LinkInfo
from contract.link_tests import TCP, UDP, LinkTest, run_key

T0 = datetime(2026, 11, 21, 6, tzinfo=UTC)
TEST = LinkTest(T0, T0 + timedelta(seconds=20), "0f" * 16, UDP, 30_302, 750, 1_000_000)
FAR = "fe80::7"


def link(remote: str, local: str | None) -> LinkInfo:
    local_ip = ip_address(local) if local is not None else None
    return LinkInfo(7, 182, True, 500, ip_address(remote), remote_port=50_000, local_ip=local_ip, tests=(TEST,))


def test_order_is_the_statement_with_the_key_of_this_run() -> None:
    assert order_of(link("192.0.2.11", "127.0.0.1"), TEST, "secret", ()) == {
        "id": "0f" * 16,
        "key": run_key("secret", "0f" * 16).hex(),
        "port": 30_302,
        "local_ip": "127.0.0.1",
        "remote_ip": "192.0.2.11",
        "ifindex": 0,
        "from_ms": 1_795_240_800_000,
        "until_ms": 1_795_240_820_000,
        "max_kbit": 750,
        "max_bytes": 1_000_000,
        "tcp": False,
    }
    assert order_of(link("192.0.2.11", "127.0.0.1"), replace(TEST, kind=TCP), "secret", ())["tcp"] is True


@pytest.mark.parametrize(
    ("remote", "local", "interfaces", "wanted"),
    [
        ("192.0.2.11", "198.51.100.1", (), (None, 0)),  # behind a NAT
        (FAR, "fe80::4", (), (None, 4)),
        (FAR, "fe80::1", (), (None, 0)),  # of two interfaces
        (FAR, "fe80::1", ("lo",), (None, 1)),
        (FAR, None, ("lo",), (None, 1)),
        (FAR, None, ("lo", "eth9"), (None, 0)),
    ],
)
def test_end_binds_what_the_host_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    remote: str,
    local: str | None,
    interfaces: tuple[str, ...],
    wanted: tuple[str | None, int],
) -> None:
    rows = {"fe80::1": (2, 3), "fe80::4": (4,)}
    lines = [
        f"{ip_address(one).packed.hex()} {n:02x} 40 20 80 eth{n}" for one, several in rows.items() for n in several
    ]
    (tmp_path / "if_inet6").write_text("\n".join(lines))
    monkeypatch.setattr(sending_order, "_ADDRESSES", tmp_path / "if_inet6")
    found = order_of(link(remote, local), TEST, "secret", interfaces)
    assert (found["local_ip"], found["ifindex"]) == wanted
