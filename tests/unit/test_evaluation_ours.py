"""Links as our engine gets them in a bed, and what the limiters that are not ours are told."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bandwidth_config import Limits
from contract.link_info import check_link_info
from lab.bench.engines import entries_of
from lab.evaluation import limiters
from lab.evaluation.bed import Bed, Wire
from lab.evaluation.limiters import NO_LIMIT, WONDERSHAPER, Link, install_peer, wrong
from lab.evaluation.ours import link_infos
from measuring.netns import Namespace

LINKS = [Wire(1, 1).link(500), Wire(1, 2).link(Limits(1_000, 250)), Wire(1, 3).link(0, ipv6=True)]


def test_our_engine_gets_the_links_with_both_limits_and_both_ends() -> None:
    found = link_infos(LINKS)
    assert {number: one.limits for number, one in found.items()} == {
        1: Limits.both(500),
        2: Limits(1_000, 250),
        3: Limits.both(0),
    }
    assert (str(found[1].remote_ip), found[1].remote_port, found[1].local_port) == ("10.1.1.2", 50_001, 51_001)
    assert str(found[3].remote_ip) == "fd00:1:3::2"
    assert all(one.is_user_as for one in found.values())


def test_with_four_keys_links_are_known_by_their_address_alone() -> None:
    found = link_infos(LINKS[:1], four_keys=True)
    assert (found[1].bandwidth_kbit, found[1].remote_port, found[1].local_ip) == (500, None, None)


def test_an_engine_in_another_process_reads_the_same_links() -> None:
    found = link_infos(LINKS)
    assert entries_of(found)["2"]["Bandwidth-From-User"] == 250
    for four_keys in (False, True):
        links = link_infos(LINKS, four_keys=four_keys)
        assert check_link_info(entries_of(links)) == links


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
