"""Selects samples from the limiter's states, including the last counters of segments, and makes batches.

A skipped state costs resolution and no bytes: the next one has the counters since the segment began. An ended segment
has no next one, so each that the limiter names is stored once, in a separate batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from ap_agent.document.state import ClosedSegment, DirectionState, LimiterState
from ap_agent.usage.batch import MINUTE_MS, Key, Row, Sample, fits, segment_text
from ap_agent.usage.spool import KEPT_MS, Spool

_EARLY = 0.8  # of the interval: tolerance for a state that comes early
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Sampler:
    """For one spool. `dropped` counts discarded batches, `taken` the samples."""

    def __init__(self, spool: Spool) -> None:
        """Closes the batch that a previous process left open. Raises `StoreError`."""
        self.spool = spool
        with spool.changes():
            spool.close_batch(spool.open_samples())
        self._open: list[Sample] = []
        self.newest: Sample | None = next(reversed(spool.newest_samples()), None)
        self._ended = spool.ended()
        self.taken = self.dropped = 0

    def take(self, state: LimiterState, interval_s: float) -> None:
        """Store this state if a sample is due or a segment ended. Raises `StoreError`; then the next state has the same
        segments."""
        sample = sample_of(state, self.newest)
        ended = [one for one in state.closed if segment_text(one.segment) not in self._ended]
        is_due = bool(sample.rows) and self._is_due(sample, interval_s)
        if not is_due and not ended:
            return
        still_open = self._open
        with self.spool.changes():
            if ended or (is_due and not fits(still_open, sample)):
                self.spool.close_batch(still_open)
                still_open = []
            for batch in _batches_of(ended, self.newest, sample.version):
                self.spool.add_batch([batch])
            self.spool.note_ended((segment_text(one.segment), one.closed_at_ms) for one in ended)
            if is_due:
                self.spool.add_sample(sample)
                still_open = [*still_open, sample]
                if (sample.at_ms + interval_s * 1000) // MINUTE_MS != sample.at_ms // MINUTE_MS:
                    self.spool.close_batch(still_open)
                    still_open = []
        self._ended.update((segment_text(one.segment), one.closed_at_ms) for one in ended)
        self._open = still_open
        if is_due:
            self.newest, self.taken = sample, self.taken + 1
        if len(still_open) <= 1:  # a batch was closed
            self._tidy(sample.at_ms)

    def _is_due(self, sample: Sample, interval_s: float) -> bool:
        before = self.newest
        if before is None or sample.version != before.version:
            return before is None or sample.at_ms != before.at_ms
        passed_ms = sample.at_ms - before.at_ms
        return passed_ms < 0 or passed_ms >= _EARLY * interval_s * 1000  # below 0: the clock was set back

    def _tidy(self, now_ms: int) -> None:
        living = (
            frozenset(segment_text(row.segment) for row in self.newest.rows.values()) if self.newest else frozenset()
        )
        self.dropped += self.spool.prune(now_ms, living)
        if any(at_ms < now_ms - KEPT_MS for at_ms in self._ended.values()):  # the limiter names them for a day
            with self.spool.changes():
                self.spool.forget_ended(now_ms - KEPT_MS)
            self._ended = {segment: at_ms for segment, at_ms in self._ended.items() if at_ms >= now_ms - KEPT_MS}


def sample_of(state: LimiterState, before: Sample | None) -> Sample:
    """All directions in the kernel."""
    rows: dict[Key, Row] = {}
    key: Key
    known = before.rows if before is not None else {}
    for number, link in state.links.items():
        for key, side in (((number, "to_user"), link.to_user), ((number, "from_user"), link.from_user)):
            if side is not None:
                rows[key] = _row(side, known.get(key), drops=side.drops, backlog_bytes=side.backlog_bytes)
    version = state.order.configuration if state.order is not None else None
    return Sample(_ms(state.written_at), version, rows)


def _row(of: DirectionState | ClosedSegment, before: Row | None, *, drops: int, backlog_bytes: int = 0) -> Row:
    """Drops never fall within a segment: the last counters lack HTB's part."""
    if before is not None and before.segment == of.segment:
        drops = max(drops, before.drops)
    return Row(of.segment, of.rate_kbit, of.counters.passed_bytes, of.counters.passed_packets, drops, backlog_bytes)


def _batches_of(ended: Iterable[ClosedSegment], before: Sample | None, version: str | None) -> list[Sample]:
    """The last rows, oldest first; each sample becomes a batch. Earlier counts go first, whatever the clock says."""
    earliest_ms = before.at_ms + 1 if before is not None else 0
    known = before.rows if before is not None else {}
    made: list[Sample] = []
    for one in sorted(ended, key=lambda one: one.closed_at_ms):
        if not one.counters.passed_bytes and not one.counters.refused_packets:
            continue
        key = one.interface_id, one.direction
        last = known.get(key)
        is_known = last is not None and last.segment == one.segment
        whose = before.version if before is not None and is_known else version
        row = _row(one, last, drops=one.counters.refused_packets)
        at_ms = max(one.closed_at_ms, earliest_ms)
        fitting = (rows for when, of, rows in made if (when, of) == (at_ms, whose) and key not in rows)
        rows = next(fitting, None)
        if rows is None:
            made.append(Sample(at_ms, whose, {key: row}))
        else:
            assert isinstance(rows, dict)  # noqa: S101 - for the type checker: made above
            rows[key] = row
    return made


def _ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)
