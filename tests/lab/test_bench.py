"""The arithmetic under the published figures and their targets, and a place in docs for each suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lab.bench.__main__ import SUITES, load, page_of
from lab.bench.core import Outcome, Scale, median, percentile
from lab.bench.publish import PUBLISHED
from lab.bench.report import Verdict, replace_between
from lab.bench.suites import install, packet, save, service


def test_medians_and_percentiles() -> None:
    assert (median([1.0, 2.0, 90.0]), median([4.0, 1.0, 2.0, 90.0])) == (2.0, 3.0)
    samples = list(range(100, 0, -1))
    assert [percentile(samples, share) for share in (0.5, 0.99, 1.0, 0.0, 0.001)] == [50, 99, 100, 1, 1]
    with pytest.raises(ValueError, match="no samples"):
        median([])


def test_every_suite_has_steps_and_a_place_in_docs_and_says_nothing_of_nothing() -> None:
    folder = Path(__file__).resolve().parents[2] / "lab/bench/suites"
    assert set(SUITES) == {one.stem for one in folder.glob("*.py")} - {"__init__"}
    for name in SUITES:
        suite = load(name)
        assert all(suite.steps(Scale(quick=quick)) for quick in (True, False))
        assert (page_of(suite, Outcome(name)).verdicts, page_of(suite, Outcome(name)).plots) == ([], [])
    text = (Path(__file__).resolve().parents[2] / "docs/performance.md").read_text(encoding="utf-8")
    assert all(replace_between(text, name, "x") != text for name in PUBLISHED)


def of_install(
    more: Mapping[tuple[str, str], float], *, kb: float = 10.0, dumps: int = 0, writes: int = 0
) -> list[Verdict]:
    ours, kernel = install.OURS, install.KERNEL
    seconds = {
        (install.INSTALL, ours): 2.5, (install.INSTALL, kernel): 2.0, (install.CHANGE, ours): 0.0019,
        (install.NO_OP, ours): 0.040, (install.NO_OP, kernel): 0.025,
    }  # fmt: skip
    outcome = Outcome(install.NAME)
    for (what, variant), value in {**seconds, **more}.items():
        outcome.add(value, "s", what=what, size=4000, variant=variant)
        outcome.add(value * 9, "s", what=what, size=1000, variant=variant)  # the largest size is judged
    outcome.add(kb * 4_000_000, "bytes", what=install.MEMORY, part="all", size=4000, variant=ours)
    outcome.add(dumps, "dumps", what=install.DUMPED, size=4000, variant=ours)
    outcome.add(writes, "writes", what=install.WRITES, size=4000, variant=ours)
    return list(install.verdicts(outcome))


def of_packet(more: Mapping[tuple[str, str, str], float], flooded: float = 1.05) -> list[Verdict]:
    outcome = Outcome(packet.NAME)
    for way, random_ns in ((packet.TO_USER, 3300.0), (packet.FROM_USER, 3000.0)):
        of_way = {
            (packet.INSTANT, packet.NOBODY, way): 1300.0, (packet.OURS, packet.NOBODY, way): 1420.0,
            (packet.OURS, packet.RANDOM, way): random_ns, (packet.OURS, packet.HOT, way): 1800.0,
            (packet.THESIS, packet.HOT, way): 1800.0,
        }  # fmt: skip
        for key, ns in of_way.items():
            variant, traffic, _ = key
            value = more.get(key, ns)
            outcome.add(value, "ns", variant=variant, traffic=traffic, direction=way, size=4000, family=4)
    for variant, factor in ((packet.OURS, flooded), (packet.INSTANT, 1.01)):
        for traffic, ns in ((packet.NOBODY, 1000.0), (packet.FLOODED, 1000.0 * factor)):
            where = {"variant": variant, "direction": packet.TO_USER, "part": "flood"}
            outcome.add(ns, "ns", traffic=traffic, size=4000, family=4, **where)
    return list(packet.verdicts(outcome))


def of_save(samples_ms: tuple[float, ...], anew: int = 0) -> list[Verdict]:
    outcome = Outcome(save.NAME)
    for sample in samples_ms:
        outcome.add(sample, "ms", what=save.FROM_REQUEST, setup=save.EMBEDDED, variant=save.OURS)
    outcome.add(5000.0, "ms", what=save.FROM_REQUEST, setup=save.EMBEDDED, variant=save.STOCK)
    outcome.add(anew, "attachment points", what=save.ANEW, setup=save.EMBEDDED)
    return list(save.verdicts(outcome))


def of_service(writes: float, many_ms: float = 15.0) -> list[Verdict]:
    outcome = Outcome(service.NAME)
    for count, took_ms in ((100, 10.0), (1000, 99.0), (9000, many_ms)):
        outcome.add(took_ms, "ms", what="wake one", kind=service.POSTGRESQL, count=count)
    outcome.add(1.0, "statements", what="writes", status=200, at_once=1)
    outcome.add(0.0, "statements", what="writes", status=304, at_once=1)
    outcome.add(writes, "statements", what="writes", status=304, at_once=32)
    return list(service.verdicts(outcome))


TARGETS: list[tuple[Callable[[], list[Verdict]], list[int]]] = [
    (lambda: of_install({}), []),
    (lambda: of_install({(install.INSTALL, install.OURS): 3.01, (install.INSTALL, install.KERNEL): 2.9}), [0]),
    (lambda: of_install({(install.INSTALL, install.OURS): 2.9}), [1]),
    (lambda: of_install({}, kb=10.1), [2]),
    (lambda: of_install({(install.CHANGE, install.OURS): 0.0021}), [3]),
    (lambda: of_install({}, dumps=1), [3]),
    (lambda: of_install({}, writes=1), [4]),
    (lambda: of_install({(install.NO_OP, install.KERNEL): 0.019}), [4]),
    (lambda: of_packet({}), []),
    (lambda: of_packet({(packet.OURS, packet.NOBODY, packet.TO_USER): 1421.0}), [0]),
    (lambda: of_packet({}, flooded=1.051), [1]),
    (lambda: of_packet({(packet.OURS, packet.NOBODY, packet.FROM_USER): 1421.0}), [2]),
    (lambda: of_packet({(packet.OURS, packet.HOT, packet.TO_USER): 1801.0}), [3]),
    (lambda: of_packet({(packet.THESIS, packet.HOT, packet.FROM_USER): 1799.0}), [4]),
    (lambda: of_packet({(packet.OURS, packet.RANDOM, packet.FROM_USER): 2990.0}), [5]),
    (lambda: of_save((100.0, 290.0, 5000.0)), []),
    (lambda: of_save((290.0, 300.0, 300.0)), [0]),
    (lambda: of_save((100.0,), anew=1), [0]),
    (lambda: of_service(0.0), []),
    (lambda: of_service(0.01), [1]),
    (lambda: of_service(0.0, 15.1), [0]),
]


@pytest.mark.parametrize(("judged", "missed"), TARGETS)
def test_a_target_is_held_at_its_bound_and_missed_beyond(
    judged: Callable[[], list[Verdict]], missed: list[int]
) -> None:
    assert [number for number, one in enumerate(judged()) if not one.is_held] == missed
