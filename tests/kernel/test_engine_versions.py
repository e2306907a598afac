"""Another version of the program takes over in place: with the same layout all counters, with another one no limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from ap_agent.dataplane import program
from ap_agent.dataplane.engine import Engine
from ap_agent.dataplane.program import OBJECT
from tests.kernel.engine_bed import U2, EngineBed, link, wanted

TWO = wanted(link(7, 500, 1000), link(8, 0, 2000, ip=U2))


def upgraded(bed: EngineBed, tmp_path: Path) -> Engine:
    """An engine with another version of the program: what follows the last section does nothing."""
    other = tmp_path / "other.bpf.o"
    other.write_bytes(OBJECT.read_bytes() + b"another version")
    return bed.ap.call(lambda: Engine(bed.maps_dir, object_file=other, on_closed=bed.closed.extend))


def names(bed: EngineBed) -> list[str]:
    return sorted(one.name for one in bed.maps_dir.iterdir() if "." not in one.name)


def test_a_version_with_the_same_layout_goes_on_with_every_counter(bed: EngineBed, tmp_path: Path) -> None:
    bed.enforce(TWO)
    bed.received_kbit(to_user=False, seconds=0.3)
    before, old_names = bed.engine.counters(), names(bed)
    bed.engine.close()
    bed.engine = upgraded(bed, tmp_path)
    outcome = bed.enforce(TWO)
    assert (outcome.is_ok, bed.closed) == (True, [])
    assert {str(one) for one in outcome.plan.operations} == {
        f"{dev}: change filters at {hook}" for dev in ("eth0", "eth1") for hook in ("ingress", "egress")
    }
    assert bed.engine.counters() == before
    assert before[7, "from_user"][1].passed_packets > 10
    assert [one for one in names(bed) if one.endswith("-1")] == [one for one in old_names if one.endswith("-1")]
    assert len(names(bed)) == len(old_names)
    assert bed.enforce(TWO).writes == 0
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)


def test_a_version_with_another_layout_ends_the_segments_and_begins_anew(
    bed: EngineBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.enforce(TWO)
    bed.received_kbit(to_user=False, seconds=0.3)
    before = bed.engine.counters()
    bed.engine.close()
    monkeypatch.setattr(program, "LAYOUT", "another")
    bed.engine = upgraded(bed, tmp_path)
    outcome = bed.enforce(TWO)
    assert outcome.is_ok
    assert {(one.interface_id, one.direction): (one.segment, one.counters) for one in bed.closed} == before
    assert len(bed.closed) == len(before)
    after = bed.engine.counters()
    assert after.keys() == before.keys()
    assert not {one[0] for one in after.values()} & {one[0] for one in before.values()}
    assert not [one for one in names(bed) if one.endswith("-1")]
    assert bed.received_kbit(to_user=True, user=U2) == 0
    assert bed.received_kbit(to_user=False) == pytest.approx(1000, abs=220)
    again = bed.enforce(TWO)
    assert (again.writes, len(bed.closed)) == (0, len(before))
