"""Beds of the evaluation in the kernel: each limiter limits what it is told, in both directions."""

from __future__ import annotations

from bandwidth_config import Limits
from lab import witness
from lab.evaluation.bed import Bed, BedLab, limit_all
from lab.evaluation.limiters import NO_LIMIT, OURS, THESIS, WONDERSHAPER, WRONG

PREFIX = "slbedtest"


def rates_kbit(bed: Bed, wire: int, dev: str, classid: str) -> int | None:
    found = witness.classes(bed.ap, dev.format(wire)).get(classid)
    return found.rate_bits // 1000 if found is not None else None


def test_every_limiter_limits_its_bed_both_ways_and_changes_it() -> None:
    with BedLab(PREFIX) as lab:
        beds = {limiter: Bed(lab, limiter, wires=2) for limiter in (OURS, WRONG, THESIS, WONDERSHAPER, NO_LIMIT)}
        limit_all(beds.values(), {1: 500, 2: 800})
        assert rates_kbit(beds[OURS], 2, "slbw0", "51b0:2") == rates_kbit(beds[OURS], 2, "slbw1", "51b0:1002") == 800
        assert rates_kbit(beds[WRONG], 1, "slbw0", "51b0:1") == rates_kbit(beds[WRONG], 1, "slbw1", "51b0:1001") == 550
        assert rates_kbit(beds[THESIS], 1, "eth{}", "1:1") == rates_kbit(beds[THESIS], 1, "ifb{}", "2:1") == 500
        assert (
            rates_kbit(beds[WONDERSHAPER], 2, "eth{}", "1:1")
            == rates_kbit(beds[WONDERSHAPER], 2, "ifb{}", "2:1")
            == 800
        )
        assert not witness.classes(beds[NO_LIMIT].ap, "eth1")
        offloads = beds[OURS].users.ip("-d", "link", "show", "dev", "eth1")
        assert "gso_max_segs 1 " in offloads

        for limiter in (OURS, THESIS, WONDERSHAPER):
            beds[limiter].limit({1: Limits(300, 200)})
        assert rates_kbit(beds[OURS], 1, "slbw0", "51b0:1") == 300
        assert rates_kbit(beds[OURS], 1, "slbw1", "51b0:1001") == 200
        assert rates_kbit(beds[OURS], 2, "slbw0", "51b0:2") is None
        assert rates_kbit(beds[THESIS], 1, "ifb{}", "2:1") == 200
        assert rates_kbit(beds[WONDERSHAPER], 1, "eth{}", "1:1") == 200
