"""The limiter's state file: what is written is read back equal; unknown things are passed over, wrong ones refused."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ap_agent.common.errors import StoreError
from ap_agent.common.problem import Problem
from ap_agent.document.signed_text import Version
from ap_agent.document.state import (
    ClosedSegment,
    Counters,
    DirectionState,
    LimiterState,
    LinkState,
    Total,
    read_state,
    state_bytes,
    write_state,
)
from bandwidth_config import Limits

NOW = datetime(2026, 11, 22, 18, 15, 23, 123456, tzinfo=UTC)
COUNTED = Counters(5_000, 4, 300, 2, 100, 1)
ONE_WAY = DirectionState(500, 2**64 - 1, COUNTED, 3, 1514)
STATE = LimiterState(
    run="0123456789abcdef" * 2,
    number=4,
    written_at=NOW,
    observed_at=NOW,
    host_id="4f1c0d2e",
    order=Version(1, 18, None),
    limits_digest="0" * 64,
    is_ok=True,
    writes=12,
    links={
        7: LinkState(7, Limits(500, 800), "enforced", None, ONE_WAY, ONE_WAY._replace(rate_kbit=800)),
        9: LinkState(9, Limits(0, 0), "error", "The kernel has no class.", None, ONE_WAY),
    },
    problems=(Problem("document_refused", "document", "It is old."),),
    is_step=True,
    is_observe_only=True,
    total=Total(10_000, 10_000, None),
    unmatched=(None, ONE_WAY),
    devices=("eth0", "eth1"),
    next_step_at=NOW,
    closed=(ClosedSegment(7, "from_user", 17, 500, 1_795_371_323_000, COUNTED),),
    tests=("0f" * 16,),
    reset_reason="The package is removed.",
    is_running=False,
)
EMPTY = LimiterState("0" * 32, 1, NOW, NOW, None, None, None, is_ok=True, writes=0, links={})


@pytest.mark.parametrize("state", [STATE, EMPTY], ids=["everything", "nothing"])
def test_what_is_written_is_read_back_equal(state: LimiterState, tmp_path: Path) -> None:
    write_state(tmp_path, state)

    assert read_state(tmp_path) == state
    assert stat.S_IMODE((tmp_path / "state.json").stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], 2),
        (["links", 0, 0], "7"),
        (["links", 0, 2], "fine"),
        (["links", 0, 4, 2, 1], -1),
        (["closed", 0, 1], "sideways"),
        (["written_at"], "2026-11-22T18:15:23"),
        (["is_ok"], 1),
        (["order"], [1]),
    ],
)
def test_wrong_value_is_an_error_that_names_the_file(path: list[Any], value: object, tmp_path: Path) -> None:
    document = json.loads(state_bytes(STATE))
    *way, last = path
    inner = document
    for key in way:
        inner = inner[key]
    inner[last] = value
    (tmp_path / "state.json").write_text(json.dumps(document))

    with pytest.raises(StoreError, match=r"state\.json cannot be used"):
        read_state(tmp_path)
