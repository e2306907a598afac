"""Reports of this end of tests that send, on disk until the service has them.

    <state_dir>/tests/<id>.json     mode 0600
    {"schema": 1, "test", "ends_at_ms", "is_taken", "report": {...} or null, "came_at_ms"}

The file is created before the test begins: an end is never started twice, not even by the next agent, so that a
recorded run cannot be replayed. Schema of a report: docs/api.md.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ap_agent.common.errors import AgentError, StoreError
from ap_agent.common.files import parse_json, read_own, write_atomically

SCHEMA = 1
REPORT_SCHEMA, SIDE = 1, "ap"
OUTCOMES = frozenset({"completed", "nobody", "cut", "refused", "error"})
MAX_REPORT_BYTES = 256 * 1024
MOST_KEPT = 64
KEPT_FOR = timedelta(days=1)
_NAME = re.compile(r"[0-9a-f]{32}\.json", re.ASCII)


@dataclass(frozen=True)
class Kept:
    """`report` is None while the test runs. `came_at_ms`: when it was complete, since 1970."""

    test: str
    ends_at_ms: int
    is_taken: bool = False
    report: Mapping[str, Any] | None = None
    came_at_ms: int = 0


class KeptReports:
    """Reports of one agent. Memory takes precedence: a later disk error loses no report of this run."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / "tests"
        self._kept: dict[str, Kept] = {}

    def load(self) -> None:
        """Load what the previous agent left. Tests without a report were interrupted."""
        with contextlib.suppress(OSError):
            for path in sorted(self.folder.iterdir()):
                if _NAME.fullmatch(path.name) and (found := _read(path)) is not None and found.test == path.stem:
                    self._kept[found.test] = found
        for one in self._kept.values():
            if one.report is None:
                report = made_report("cut", "The agent ended before the test did.")
                self._put(replace(one, report=report, came_at_ms=one.ends_at_ms))

    def of(self, test_id: str) -> Kept | None:
        """None for a test that was never started."""
        return self._kept.get(test_id)

    def is_running(self, test_id: str) -> bool:
        found = self._kept.get(test_id)
        return found is not None and found.report is None

    def without(self, test_ids: frozenset[str]) -> list[Kept]:
        """Reports that the service lacks, of other tests than these."""
        waiting = [one for one in self._kept.values() if one.report is not None and not one.is_taken]
        return [one for one in waiting if one.test not in test_ids]

    def begin(self, test_id: str, ends_at_ms: int) -> None:
        """Raises `StoreError`: a test that could be run twice is not run."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            self._write(one := Kept(test_id, ends_at_ms))
        except OSError as exc:
            raise StoreError(
                f"{self.folder} cannot be written ({exc.strerror}), so no link tests are run. Free disk space, or "
                "repair the folder."
            ) from exc
        self._kept[test_id] = one

    def end(self, test_id: str, report: Mapping[str, Any], now: datetime) -> None:
        self._put(replace(self._kept[test_id], report=report, came_at_ms=round(now.timestamp() * 1000)))

    def took(self, test_id: str) -> None:
        """The service has it, or will never accept it."""
        if test_id in self._kept:
            self._put(replace(self._kept[test_id], is_taken=True))

    def forget(self, now: datetime) -> None:
        """Delete delivered reports of past tests, those older than a day, and the oldest of too many."""
        now_ms = round(now.timestamp() * 1000)
        oldest = sorted(self._kept.values(), key=lambda one: one.ends_at_ms)[:-MOST_KEPT]
        for one in list(self._kept.values()):
            age_ms = now_ms - one.ends_at_ms
            is_old = age_ms > KEPT_FOR // timedelta(milliseconds=1) or one in oldest
            if one.report is not None and ((one.is_taken and age_ms > 0) or is_old):
                del self._kept[one.test]
                with contextlib.suppress(OSError):
                    self._path(one.test).unlink(missing_ok=True)

    def _put(self, one: Kept) -> None:
        self._kept[one.test] = one
        with contextlib.suppress(OSError):
            self._write(one)

    def _write(self, one: Kept) -> None:
        write_atomically(self._path(one.test), json.dumps({"schema": SCHEMA, **asdict(one)}).encode(), mode=0o600)

    def _path(self, test_id: str) -> Path:
        return self.folder / f"{test_id}.json"


def made_report(outcome: str, why: str) -> dict[str, Any]:
    """A report for an end that has none."""
    return {"schema": REPORT_SCHEMA, "side": SIDE, "outcome": outcome, "why": why, "peer": None, "phases": []}


def parse_report(data: bytes) -> dict[str, Any]:
    """Raises `ValueError` with the reason. Only fields that the agent reads are checked; the service checks all."""
    if len(data) > MAX_REPORT_BYTES:
        raise ValueError(f"its report has more than {MAX_REPORT_BYTES} bytes")
    found = parse_json(data)
    if not isinstance(found, dict) or (found.get("schema"), found.get("side")) != (REPORT_SCHEMA, SIDE):
        raise ValueError("its output is not a report of this end")
    if found.get("outcome") not in OUTCOMES or not isinstance(found.get("why"), str):
        raise ValueError("its report has no outcome")
    return found


def _read(path: Path) -> Kept | None:
    """None for anything else, which is left in place."""
    try:
        return read_own(path, 2 * MAX_REPORT_BYTES, _kept, "")
    except AgentError:
        return None


def _kept(data: bytes) -> Kept:
    said = parse_json(data)
    found = Kept(**{name: said[name] for name in Kept.__dataclass_fields__})
    kinds = [type(one) for one in (found.ends_at_ms, found.came_at_ms, found.is_taken)]
    if said["schema"] != SCHEMA or kinds != [int, int, bool] or not isinstance(found.report, dict | None):
        raise ValueError("it is no report")
    return found
