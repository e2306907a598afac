"""The kernel's own messages: what makes the limiter compare, what does not, and a fight that gets a name."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ap_agent.document.live import LIVE_FILE, read_live, write_request
from ap_agent.limiter.events import Change, Listener
from tests.kernel.engine_bed import EngineBed
from tests.kernel.limiter_host import LimiterHost, limiter_on

SILENT_S = 0.5  # the kernel has said everything
QUIET_S = 1.0  # after this long without a pass none is coming


@pytest.fixture
def host(bed: EngineBed, tmp_path: Path) -> Iterator[LimiterHost]:
    yield from limiter_on(bed, tmp_path, log_level='"debug"', audit_interval_s="3600")


EGRESS = ["filter", "add", "dev", "eth1", "egress", "protocol", "all", "u32", "match", "u32", "0", "0", "flowid", "1:1"]
SAID: dict[str, tuple[list[str], set[Change]]] = {
    "an IPv4 address": (["ip addr add 203.0.113.1/32 dev lo"], {Change("", "address")}),
    "an IPv6 address": (["ip addr add 2001:db8:7::1/128 dev lo nodad"], {Change("", "address")}),
    "a route": (["ip route add 203.0.113.0/24 via 192.0.2.11"], set()),
    "a rule": (["ip rule add to 10.0.0.0/8 lookup 7"], set()),
    "a root qdisc": (["tc qdisc add dev eth0 root pfifo"], set()),
    "an MTU": (["ip link set eth0 mtu 1400"], {Change("eth0", "device")}),
    "a new card": (["ip link add wan0 type veth peer name wan1"], {Change("wan0", "device"), Change("wan1", "device")}),
    "clsact": (["tc qdisc add dev eth0 clsact"], {Change("eth0", "qdisc")}),
    "no clsact any more": (["tc qdisc del dev eth0 clsact"], {Change("eth0", "qdisc", is_undoing=True)}),
    "a filter": (
        ["tc qdisc add dev eth1 clsact", "tc " + " ".join(EGRESS)],
        {Change("eth1", "qdisc"), Change("eth1", "filter")},
    ),
}  # fmt: skip


def test_what_the_kernel_says_is_understood(host: LimiterHost, subtests: pytest.Subtests) -> None:
    with contextlib.closing(host.bed.ap.call(Listener)) as listener:
        heard_until_quiet(host, listener)  # of the host itself, which is new
        for what, (commands, expected) in SAID.items():
            with subtests.test(what):
                for command in commands:
                    host.bed.ap.run(*command.split())
                assert heard_until_quiet(host, listener) == expected


def heard_until_quiet(host: LimiterHost, listener: Listener) -> set[Change]:
    """Until every new address is confirmed and nothing comes any more: a kernel worker announces some things late."""
    heard: set[Change] = set()
    deadline, quiet_since = time.monotonic() + 20, time.monotonic()
    while time.monotonic() < quiet_since + SILENT_S:
        assert time.monotonic() < deadline, heard
        time.sleep(0.05)
        changes = host.bed.ap.call(listener.drain).changes
        if changes or host.bed.ap.run("ip", "-6", "addr", "show", "tentative").strip():
            quiet_since = time.monotonic()
        heard |= changes
    return heard


def passes_when_quiet(host: LimiterHost) -> int:
    """How many passes there were, once none has come for a while."""
    deadline = time.monotonic() + 20
    count, since = host.log().count("enforce.done"), time.monotonic()
    while time.monotonic() - since < QUIET_S:
        assert time.monotonic() < deadline, "the limiter does not come to rest"
        time.sleep(0.05)
        if host.log().count("enforce.done") != count:
            count, since = host.log().count("enforce.done"), time.monotonic()
    return count


def test_reading_the_counters_of_a_link_makes_no_pass(host: LimiterHost) -> None:
    """The kernel tells everybody of the class that somebody asked for."""
    host.begin()
    before = passes_when_quiet(host)
    read: set[int] = set()

    def has_read_five_times() -> bool:
        write_request(host.state_dir, [7])
        if (host.run_dir / LIVE_FILE).exists():
            read.update(one.clock_ms for one in read_live(host.run_dir).values())
        return len(read) >= 5

    host.until(lambda _: has_read_five_times())
    assert passes_when_quiet(host) == before


def test_a_flood_of_changes_of_others_makes_few_passes_and_nothing_is_slept_through(host: LimiterHost) -> None:
    host.begin()
    before = passes_when_quiet(host)
    began = time.monotonic()
    host.bed.ap.ip_batch(
        f"addr {what} 10.0.{n >> 8}.{n & 255}/32 dev lo" for n in range(5000) for what in ("add", "del")
    )
    took_s = time.monotonic() - began
    assert 1 <= passes_when_quiet(host) - before <= took_s / 0.1 + 3
    host.bed.tc("qdisc", "del", "dev", "slbw0", "root")
    host.until(lambda state: host.rates() == ["500Kbit"] and state.is_ok)
