"""The report of an import: created, changed, kept and skipped objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from scionlab.importer.dump import APP

KINDS: Final = {
    "user": "users",
    "isd": "ISDs",
    "as": "ASes",
    "useras": "user ASes",
    "host": "hosts",
    "borderrouter": "border routers",
    "vpn": "VPNs",
    "attachmentpoint": "attachment points",
    "vpnclient": "VPN clients",
    "interface": "interfaces",
    "link": "Links",
    "trc": "TRCs",
    "key": "SCION keys",
}
# Models that are not imported.
OTHERS: Final = {"service": "services"}
_WITH_ANOTHER: Final = {"certificate"}  # counted with its key
_COLUMNS: Final = ("in the file", "made", "changed", "same", "skipped")


class Row(Protocol):
    """What a dump has of any kind."""

    @property
    def pk(self) -> int: ...
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, order=True)
class Problem:
    """An entry that breaks a rule. `message`: the value, the limit and the remedy."""

    kind: str  # of KINDS
    pk: int  # in the dump
    name: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.pk} ({self.name}): {self.message}"


@dataclass
class Count:
    made: int = 0
    changed: int = 0
    same: int = 0


@dataclass
class Report:
    """Lists in order of processing. `entries`: number of each model in the file."""

    entries: Mapping[str, int]
    skip_invalid: bool
    dry_run: bool
    counts: dict[str, Count] = field(default_factory=lambda: {kind: Count() for kind in KINDS})
    problems: list[Problem] = field(default_factory=list)
    dependents: list[str] = field(default_factory=list)  # skipped because they need a skipped one
    merged: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)  # differs there, and is kept as it is here
    gone: list[str] = field(default_factory=list)  # here, and not in the file
    notes: list[str] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """Nothing is imported: a rule is broken, without `skip_invalid`."""
        return bool(self.problems) and not self.skip_invalid

    @property
    def is_stored(self) -> bool:
        return not (self.is_refused or self.dry_run)

    @property
    def made(self) -> int:
        return sum(count.made for count in self.counts.values())

    @property
    def changes(self) -> int:
        return sum(count.changed for count in self.counts.values())

    def lines(self) -> Iterator[str]:
        if self.is_refused:
            yield "Nothing was imported. Result with --skip-invalid:"
        elif self.dry_run:
            yield "Dry run: nothing was changed. Result of a real run:"
        yield from self._table()
        for title, found in (
            ("Invalid", self.problems),
            ("Skipped, because it depends on a skipped entry", self.dependents),
            ("Changed", self.changed),
            ("Different in the file; not changed", self.kept),
            ("Not in the file (not deleted)", self.gone),
            ("Merged", self.merged),
            ("Notes", self.notes),
        ):
            if found:
                yield ""
                yield f"{title} ({len(found)}):"
                yield from (f"  {one}" for one in found)
        yield ""
        would = "" if self.is_stored else "would be "
        yield f"{self.made} {would}made, {self.changes} {would}changed."

    def _table(self) -> Iterator[str]:
        rows: list[tuple[str, ...]] = [("", *_COLUMNS)]
        for kind, title in KINDS.items():
            count, entries = self.counts[kind], self.entries.get(APP + kind, 0)
            known = count.made + count.changed + count.same
            rows.append((title, *map(str, (entries, count.made, count.changed, count.same, entries - known))))
        for model in sorted(self.entries):
            kind = model.removeprefix(APP) if model.startswith(APP) else model
            if kind not in KINDS.keys() | _WITH_ANOTHER:
                left_out = str(self.entries[model])
                rows.append((OTHERS.get(kind, kind), left_out, "", "", "", left_out))
        first = max(len(row[0]) for row in rows)
        widths = [len(column) for column in _COLUMNS]
        for title, *cells in rows:
            padded = (f"{cell:>{max(width, 5)}}" for cell, width in zip(cells, widths, strict=True))
            yield f"{title:<{first}}  {'  '.join(padded)}".rstrip()
