"""What a service must make of an agent's batches, without a database: the judge of the agent's tests."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from typing import Any

COLUMNS = ("bytes", "packets", "drops")
Sums = dict[tuple[int, str], tuple[int, int, int]]


@dataclass
class Ledger:
    """`segments` has the highest counters of each segment, by link, direction and name."""

    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    duplicates: int = 0

    def take(self, body: bytes) -> None:
        """One upload, gzipped. A batch that comes twice must be the same, and counts once."""
        document: dict[str, Any] = json.loads(gzip.decompress(body))
        key = document["batch"]
        if key in self.batches:
            assert self.batches[key] == document
            self.duplicates += 1
        check(document)
        self.batches[key] = document

    def segments(self) -> dict[tuple[int, str, str], tuple[int, ...]]:
        found: dict[tuple[int, str, str], tuple[int, ...]] = {}
        for document in self.batches.values():
            for number, directions in document["links"].items():
                for direction, said in directions.items():
                    key = int(number), direction, said["segment"]
                    highest = [max((one for one in said[name] if one is not None), default=0) for name in COLUMNS]
                    found[key] = tuple(map(max, found.get(key, (0, 0, 0)), highest))
        return found

    def sums(self) -> Sums:
        """Bytes, packets and drops of each link and direction: each segment's counters began at 0."""
        total: dict[tuple[int, str], list[int]] = {}
        for (number, direction, _), counters in self.segments().items():
            one = total.setdefault((number, direction), [0, 0, 0])
            total[number, direction] = [a + b for a, b in zip(one, counters, strict=True)]
        return {key: (one[0], one[1], one[2]) for key, one in total.items()}

    def versions(self) -> set[str]:
        return {document["version"] for document in self.batches.values()}


def check(document: dict[str, Any]) -> None:
    """The contract of one batch, so far as every batch must keep it."""
    times = document["times"]
    assert document["schema"] == 1
    assert len(document["batch"]) == 32
    assert 1 <= len(times) <= 60
    assert times == sorted(set(times))
    for directions in document["links"].values():
        for said in directions.values():
            assert 1 <= len(said["segment"]) <= 64
            columns = [said[name] for name in ("rate_kbit", *COLUMNS, "backlog_bytes")]
            assert all(len(column) == len(times) for column in columns)
            for name in COLUMNS:
                known = [one for one in said[name] if one is not None]
                assert known == sorted(known), f"{name} of {said['segment']} went backwards"
