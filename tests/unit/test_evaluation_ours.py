"""What feeds the agent of the evaluation: signed tarballs that the agent's own reader takes, and the host API."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from ap_agent.common.setting_kinds import pinned_keys
from ap_agent.document.bundle import Bundle, read_bundle
from ap_agent.document.signatures import Keyring, verify
from bandwidth_config import Limits
from evaluation import limiters, ours
from evaluation.bed import Bed, Wire
from evaluation.limiters import NO_LIMIT, WONDERSHAPER, Link, install_peer, wrong
from evaluation.ours import HOST_ID, Configurations, HostService, Offer, OurAgent
from measuring.netns import LabError, Namespace
from tests.agent_service import free_port

LINKS = [Wire(1, 1).link(500), Wire(1, 2).link(Limits(1_000, 250)), Wire(1, 3).link(0, ipv6=True)]


class Here:
    """A namespace that is this one."""

    name = "here"

    def call(self, function: Callable[[], Any]) -> Any:
        return function()

    def python(self, *_: str, **__: Any) -> Any:
        return self

    def poll(self) -> None:
        """The process runs for ever."""


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostService]:
    monkeypatch.setattr(ours, "_SERVICE", ("127.0.0.1", free_port()))
    running = HostService(cast(Namespace, Here()))
    yield running
    running.close()


def read(offer: Offer, configurations: Configurations) -> Bundle:
    """As an agent does that pins the key of these configurations."""
    keyring = Keyring.of(pinned_keys([configurations.pinned]))
    return read_bundle(
        offer.tarball, host_id=HOST_ID, verify=lambda manifest: verify(manifest, keyring, datetime.now(UTC))
    )


def ask(query: str) -> tuple[int, bytes]:
    host, port = ours._SERVICE
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/api/v4/host/{HOST_ID}/config{query}", timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as exc:
        return exc.code, b""


def test_the_agents_own_reader_takes_the_tarball_and_finds_the_limits() -> None:
    configurations = Configurations()
    found = read(configurations.make(LINKS), configurations).links
    assert {number: one.limits for number, one in found.items()} == {
        1: Limits.both(500),
        2: Limits(1_000, 250),
        3: Limits.both(0),
    }
    assert (str(found[1].remote_ip), found[1].remote_port, found[1].local_port) == ("10.1.1.2", 50_001, 51_001)
    assert str(found[3].remote_ip) == "fd00:1:3::2"
    assert all(one.is_user_as for one in found.values())


def test_with_four_keys_links_are_known_by_their_address_alone() -> None:
    configurations = Configurations()
    found = read(configurations.make(LINKS[:1], four_keys=True), configurations).links
    assert (found[1].bandwidth_kbit, found[1].remote_port, found[1].local_ip) == (500, None, None)


def test_a_limit_alone_raises_only_the_limits_version() -> None:
    configurations = Configurations()
    first, second = configurations.make(LINKS), configurations.make([Wire(1, 1).link(7), *LINKS[1:]])
    third = configurations.make(LINKS[:1])
    assert [(one.version, one.limits_version) for one in (first, second, third)] == [("1.1", 1), ("1.1", 2), ("1.2", 3)]
    assert third.interface_ids == {"1"}


def test_an_agent_that_has_the_newest_waits_and_gets_what_comes(service: HostService) -> None:
    configurations = Configurations()
    assert ask("") == (204, b"")
    service.publish(configurations.make(LINKS))
    assert ask("?version=1.1&limits=1") == (304, b"")
    newer = configurations.make([Wire(1, 1).link(600), *LINKS[1:]])
    timer = threading.Timer(0.2, service.publish, [newer])
    timer.start()
    began = time.monotonic()
    assert ask("?version=1.1&limits=1&wait=15") == (200, newer.tarball)
    assert time.monotonic() - began < 10
    timer.join()


def test_an_agent_that_waits_does_not_hold_up_the_end(service: HostService) -> None:
    service.publish(Configurations().make(LINKS))
    answers: list[tuple[int, bytes]] = []
    waiting = threading.Thread(target=lambda: answers.append(ask("?version=1.1&limits=1&wait=15")))
    waiting.start()
    time.sleep(0.2)  # until it waits; where it does not yet, it is answered at once all the same
    service.close()
    waiting.join(10)
    assert answers == [(304, b"")]


def test_only_a_receipt_of_this_version_with_every_link_enforced_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_SERVICE", ("127.0.0.1", free_port()))
    agent = OurAgent(cast(Namespace, Here()))
    try:
        agent.offer(LINKS)
        agent.offer([Wire(1, 1).link(600), *LINKS[1:]])
        enforced = {number: {"state": "enforced"} for number in ("1", "2", "3")}
        good = {"version": "1.1", "limits_version": 2, "links": enforced, "problems": []}
        problem = {"code": "foreign_root", "subject": "eth2", "message": "eth2 has a root qdisc that is not ours."}
        bad = [
            good | {"limits_version": 1},
            good | {"version": "1.0"},
            good | {"links": {"1": {"state": "enforced"}}},
            good | {"links": enforced | {"2": {"state": "error"}}, "problems": [problem]},
        ]
        for receipt in bad:
            agent.service.store(receipt)
        with pytest.raises(LabError, match=r"here \(still runs\) did not enforce within 0.1 s: .*foreign_root"):
            agent.wait_enforced(0.1)
        agent.service.store(good)
        assert agent.wait_enforced(0.1) == agent.service.receipts[-1][0]
    finally:
        agent.close()


def test_a_wrong_limit_is_ten_per_cent_off() -> None:
    assert wrong(LINKS[1]).limits == Limits(1_100, 275)


# --- limiters that are not ours -----------------------------------------------------------------------------------


class Recorder:
    """Remembers what would be run."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def run(self, *argv: str, stdin: str = "", check: bool = True) -> str:
        self.said.append(" ".join(argv) + stdin)
        return ""

    def ip(self, *words: str, check: bool = True) -> str:
        return self.run("ip", *words)


def test_the_thesis_rebuilds_an_interface_with_all_links_behind_it() -> None:
    links = [Link(1, "eth1", ("10.1.1.1", 1), ("10.1.1.2", 1), Limits(500, 400)), *LINKS[1:2]]
    ap = Recorder()
    install_peer(limiters.THESIS, cast(Namespace, ap), links)
    first, second = ap.said
    assert "tc qdisc del dev eth1 root" in first
    assert "set -e" in first
    assert "classid 1:1 htb rate 400kbit" in first  # it knows one number: the lower
    assert "dev ifb1" in first
    assert "eth2" in second


def test_wondershaper_limits_the_interface() -> None:
    ap = Recorder()
    install_peer(WONDERSHAPER, cast(Namespace, ap), LINKS[:1])
    assert any("class add dev eth1 parent 1: classid 1:1 htb rate 500kbit" in one for one in ap.said)


def test_no_limit_does_nothing_and_an_unknown_name_is_refused() -> None:
    ap = Recorder()
    install_peer(NO_LIMIT, cast(Namespace, ap), LINKS)
    assert ap.said == []
    with pytest.raises(ValueError, match="nobody"):
        install_peer("nobody", cast(Namespace, ap), LINKS)


def test_a_bed_has_at_least_one_wire_and_at_most_as_many_as_addresses() -> None:
    for count in (0, 251):
        with pytest.raises(ValueError, match=f"{count} wires"):
            Bed(cast(Any, None), NO_LIMIT, count)
