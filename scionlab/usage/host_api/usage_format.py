"""A batch of usage samples (docs/api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, UnsetType, defstruct

from scionlab.delivery.host_api.documents import (
    Document,
    Hex32,
    InterfaceId,
    Kind,
    Text32,
    Time,
    TooLargeError,
    Version,
    Versioned,
    WrongError,
    time_of,
    version_of,
)
from scionlab.enforcement.counters import KEPT
from scionlab.enforcement.directions import DIRECTIONS, DirectionName
from scionlab.usage.batch import Batch, DirectionSamples, Sample
from scionlab.usage.totals import to_ms

MAX_TIMES: Final = 60
MAX_COUNTER: Final = 2**60  # an exabyte: a month's sum over thousands of links must fit into 64 bits
MAX_RATE_KBIT: Final = 2**31 - 1

# Enough for 4094 links at 60 times. 32 MiB of brackets would take a gigabyte, and are 50 kB as sent.
MAX_BRACKETS: Final = 100_000
MAX_COMMAS: Final = 3_000_000

Rate = Annotated[int, Meta(ge=0, le=MAX_RATE_KBIT)]
Counter = Annotated[int, Meta(ge=0, le=MAX_COUNTER)]
Counters = Annotated[list[Counter | None], Meta(max_length=MAX_TIMES)]


_Kept: Any = defstruct("_Kept", [(name, Counters) for name in KEPT], bases=(Document,), frozen=True, gc=False)


class UsedDocument(_Kept, frozen=True, gc=False, kw_only=True):  # type: ignore[misc, call-arg]  # made at run time
    """One direction; null where the kernel had no class."""

    segment: Annotated[
        str,
        Meta(
            pattern=r"^[!-~]{1,64}(?!\n)$",
            title="1 to 64 visible ASCII characters",
            description="Identifies one lifetime of the class.",
        ),
    ]
    rate_kbit: Annotated[list[Rate | None], Meta(max_length=MAX_TIMES)]
    backlog_bytes: Counters


COLUMNS: Final = ("rate_kbit", "backlog_bytes", *KEPT)


class UsedLink(Document, frozen=True, gc=False):
    to_user: UsedDocument | UnsetType | None = UNSET
    from_user: UsedDocument | UnsetType | None = UNSET


class UsageDocument(Versioned, frozen=True):
    batch: Hex32
    agent_version: Text32
    version: Annotated[Version, Meta(description="That of the configuration to which the interface ids belong.")]
    times: Annotated[list[Time], Meta(min_length=1, max_length=MAX_TIMES)]
    links: dict[InterfaceId, UsedLink]

    def __post_init__(self) -> None:
        version_of(self.version)
        for interface_id, link in self.links.items():
            for name in DIRECTIONS:
                if used := getattr(link, name):
                    _check(used, f"links.{interface_id}.{name}", len(self.times))


USAGE: Final = Kind(UsageDocument, "usage_invalid", "The batch")


def parse_usage(content: bytes) -> Batch:
    """Raises only `DocumentError`, for any bytes."""
    if content.count(b"[") + content.count(b"{") > MAX_BRACKETS or content.count(b",") > MAX_COMMAS:
        text = f"A batch has at most {MAX_BRACKETS} lists and objects, and {MAX_COMMAS} commas."
        raise TooLargeError("too_large", f"{text} Send fewer samples per batch.")
    document = USAGE.read(content)
    times = _times(document.times)
    return Batch(
        key=document.batch,
        version=version_of(document.version),
        times_ms=times,
        links={number: dict(_directions(link, times)) for number, link in document.links.items()},
    )


def _check(used: UsedDocument, place: str, count: int) -> None:
    """Raises `WrongError`."""
    columns = [getattr(used, name) for name in COLUMNS]
    for name, column in zip(COLUMNS, columns, strict=True):
        if len(column) != count:
            raise WrongError(f"{place}.{name}", f"{count} integers or null, one for each time,")
    if any(None in column for column in columns):
        known = [[one is None for one in column] for column in columns]
        if known.count(known[0]) != len(known):
            raise WrongError(place, "null in all of its lists at a time at which the kernel had no class")


def _times(written: Sequence[str]) -> list[int]:
    """Milliseconds since 1970."""
    times: list[int] = []
    for index, one in enumerate(written):
        found = time_of(one)
        if found is None or not 1970 <= found.year < 9999:  # room for shifting it
            raise USAGE.refusal(f"times.{index}", "a time in ISO 8601 with its zone from 1970 on", one)
        times.append(to_ms(found))
    if not all(before < after for before, after in pairwise(times)):
        raise USAGE.refusal("times", "times that ascend, each later than the one before by a millisecond or more,")
    return times


def _directions(link: UsedLink, times: Sequence[int]) -> Iterator[tuple[DirectionName, DirectionSamples]]:
    for name in DIRECTIONS:
        if used := getattr(link, name):
            rows = zip(times, *(getattr(used, column) for column in COLUMNS), strict=True)
            samples = [
                Sample(*counts, at_ms=at_ms, limit_kbit=limit_kbit, backlog_bytes=backlog_bytes)
                for at_ms, limit_kbit, backlog_bytes, *counts in rows
                if limit_kbit is not None  # then none of them is: `_check`
            ]
            if samples:
                yield name, DirectionSamples(used.segment, samples)
