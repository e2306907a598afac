"""A folder per case: `actual.json` + `desired.json` -> `plan.json`.

To change what is expected: `SLBW_REGENERATE=1 pytest tests/golden`, then review the diff; a run that regenerates fails,
so that nobody does it by accident. A new case is a new folder with the first two files, or a line in CASES.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ap_agent.desired import desired
from ap_agent.model import EngineSettings
from ap_agent.placement import place
from ap_agent.plan import plan
from ap_agent.reconcile import reconcile
from bandwidth_config import LinkInfo, parse_ip
from tests.golden import codec
from tests.property.fake_kernel import IFB_INDEX, FakeKernel
from tests.property.test_plan_properties import fresh_kernel, plant_foreign

FOLDER = Path(__file__).parent / "plans"
REGENERATES = os.environ.get("SLBW_REGENERATE") == "1"

UNLIMITED, SHARED = EngineSettings(), EngineSettings(unmatched="default")


def link(number: int, kbit: int, remote: str = "192.0.2.11", port: int | None = 50000) -> LinkInfo:
    return LinkInfo(number, 0xB6, True, kbit, parse_ip(remote), remote_port=port)


Links = tuple[LinkInfo, ...]
Break = Callable[[FakeKernel], object]
ONE, TWO = (link(1, 500),), (link(1, 500), link(2, 300, port=50001))

# How the two files of a case are first made: links before, what somebody did then, links after, settings.
CASES: dict[str, tuple[Links, Break | None, Links, EngineSettings]] = {
    "first_link": ((), None, ONE, UNLIMITED),
    "second_link_behind_one_address": (ONE, None, TWO, UNLIMITED),
    "rate_raised": (ONE, None, (link(1, 800),), UNLIMITED),
    "blocked": (ONE, None, (link(1, 0),), UNLIMITED),
    "unblocked": ((link(1, 0),), None, ONE, UNLIMITED),
    "address_moved": (ONE, None, (link(1, 500, "192.0.2.12"),), UNLIMITED),
    "interface_moved": (ONE, None, (link(1, 500, "198.51.100.11"),), UNLIMITED),
    "ipv6_without_port": ((), None, (link(4094, 500, "2001:db8::11", None),), UNLIMITED),
    "last_link_removed": (TWO, None, (), UNLIMITED),
    "everything_else_shares_a_class": (ONE, None, ONE, SHARED),
    "ifb_deleted": (ONE, FakeKernel.delete_ifb, ONE, UNLIMITED),
    "root_deleted": (ONE, lambda kernel: kernel.delete_root(2), ONE, UNLIMITED),
    "foreign_objects_stay": (ONE, plant_foreign, (), UNLIMITED),
    "nothing_to_do": (TWO, None, TWO, UNLIMITED),
}


def _make(case: str) -> None:
    before, deed, after, settings = CASES[case]
    kernel = fresh_kernel()
    reconcile({one.interface_id: one for one in before}, UNLIMITED, kernel=kernel)
    if deed is not None:
        deed(kernel)
    state = kernel.observe()
    placed = place({one.interface_id: one for one in after}, state, kernel.route, settings)
    wanted = desired(placed.placed, placed.managed, settings)
    folder = FOLDER / case
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "actual.json", codec.plain(state))
    _write(folder / "desired.json", codec.plain(wanted))


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _read(path: Path) -> codec.Json:
    loaded: codec.Json = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def _cases() -> list[str]:
    return sorted({*CASES, *(path.name for path in FOLDER.glob("*/"))})


@pytest.mark.parametrize("case", _cases())
def test_the_plan_is_the_expected_one(case: str) -> None:
    folder = FOLDER / case
    if REGENERATES and case in CASES:
        _make(case)
    found = plan(codec.state(_read(folder / "actual.json")), codec.desired(_read(folder / "desired.json"))).to_json()
    if REGENERATES:
        _write(folder / "plan.json", found)
        pytest.fail(f"{folder} was written anew: review the diff, then run without SLBW_REGENERATE.")
    assert json.loads(json.dumps(found)) == _read(folder / "plan.json")


def test_values_survive_the_files() -> None:
    kernel = fresh_kernel()
    reconcile({one.interface_id: one for one in TWO}, SHARED, kernel=kernel)
    plant_foreign(kernel)
    state = kernel.observe()
    loaded = codec.state(json.loads(json.dumps(codec.plain(state))))
    assert loaded.devices == state.devices
    assert loaded.trees == state.trees
    assert IFB_INDEX in loaded.trees
