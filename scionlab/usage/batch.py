"""A batch of samples as values; `scionlab.usage.host_api.usage_format` parses the document (docs/api.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scionlab.enforcement.counters import Kept
from scionlab.enforcement.directions import DirectionName


class Sample(Kept, gc=False, kw_only=True):
    """One direction of a link at one time (milliseconds since 1970). Counters are the kernel's, of the class's lifetime
    (the segment)."""

    at_ms: int
    limit_kbit: int
    backlog_bytes: int


@dataclass(frozen=True)
class DirectionSamples:
    """`samples` ascend in time; times at which the kernel had no class are left out."""

    segment: str
    samples: Sequence[Sample]


@dataclass(frozen=True)
class Batch:
    """`version` is (G, H) of the configuration that the interface ids of `links` belong to. `times_ms` ascends, and is
    never empty."""

    key: str
    version: tuple[int, int]
    times_ms: Sequence[int]
    links: Mapping[int, Mapping[DirectionName, DirectionSamples]]
