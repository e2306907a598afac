"""Shared state of one import, comparisons and reporting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from scionlab.importer import rows
from scionlab.importer.report import Problem, Report, Row
from scionlab.testbed.models import AS, ISD, VPN, AttachmentPoint, BorderRouter, Host, VPNClient
from scionlab.testbed.versions.changes import Changes

REASON: Final = "imported from SCIONLab's coordination service"
BATCH: Final = 500


@dataclass
class Import:
    """State of one import: existing and created objects by the dump's primary keys; ISDs by number."""

    network: rows.Network
    kbit: int
    report: Report
    now: datetime
    changes: Changes = field(default_factory=Changes)
    users: dict[int, int] = field(default_factory=dict)
    isds: dict[int, ISD] = field(default_factory=dict)
    ases: dict[int, AS] = field(default_factory=dict)
    hosts: dict[int, Host] = field(default_factory=dict)
    routers: dict[int, BorderRouter] = field(default_factory=dict)
    vpns: dict[int, VPN] = field(default_factory=dict)
    clients: dict[int, VPNClient] = field(default_factory=dict)
    attachment_points: dict[int, AttachmentPoint] = field(default_factory=dict)
    new_hosts: set[int] = field(default_factory=set)  # our keys, as below
    readdressed: set[int] = field(default_factory=set)  # hosts with another internal address
    renumbered: set[int] = field(default_factory=set)  # ASes that moved to another ISD
    recored: set[int] = field(default_factory=set)  # ASes that became core, or are no longer

    def __post_init__(self) -> None:
        self.ap_of = {ap.as_pk: ap.pk for ap in self.network.attachment_points.values()}
        self._bad = {(one.kind, one.pk) for one in self.report.problems}

    def takes(self, kind: str, row: Row, **needs: tuple[int | None, Mapping[int, object]]) -> bool:
        """False for skipped rows: they break a rule, or something that they `needs` (by kind) is skipped."""
        if (kind, row.pk) in self._bad:
            return False
        for needed, (pk, table) in needs.items():
            if pk not in table:
                self.report.dependents.append(f"{kind} {row.pk} ({row.name}) needs {needed.rstrip('_')} {pk}")
                return False
        return True

    def refuse(self, kind: str, row: Row, message: str) -> None:
        self.report.problems.append(Problem(kind, row.pk, row.name, message))

    def note_changed(self, kind: str, row: Row, differences: Mapping[str, tuple[object, object]]) -> None:
        self.report.counts[kind].changed += 1
        self.report.changed.append(f"{kind} {row.pk} ({row.name}): {describe(differences)}")

    def keep(self, kind: str, row: Row, differences: Mapping[str, tuple[object, object]]) -> None:
        self.report.kept.append(f"{kind} {row.pk} ({row.name}): {describe(differences)}")


def describe(differences: Mapping[str, tuple[object, object]]) -> str:
    """Value here, then value in the file."""
    return ", ".join(f"{name} {_written(here)} -> {_written(there)}" for name, (here, there) in differences.items())


def _written(value: object) -> str:
    return "none" if value in (None, "") else str(value)


def differing(obj: object, wanted: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    """By attribute, current and new value."""
    found = {name: (getattr(obj, name), value) for name, value in wanted.items()}
    return {name: pair for name, pair in found.items() if pair[0] != pair[1]}


def set_all(obj: object, wanted: Mapping[str, object]) -> None:
    for name, value in wanted.items():
        setattr(obj, name, value)


def is_to_change(
    this: Import, kind: str, row: Row, found: object, wanted: Mapping[str, object], *, is_ours: bool
) -> bool:
    """Apply differences. `is_ours`: managed here, so it is kept and reported."""
    differences = differing(found, wanted)
    if differences and not is_ours:
        this.note_changed(kind, row, differences)
        set_all(found, wanted)
        return True
    this.report.counts[kind].same += 1
    if differences:
        this.keep(kind, row, differences)
    return False
