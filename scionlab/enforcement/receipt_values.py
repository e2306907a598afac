"""A receipt as frozen dataclasses (docs/api.md); `scionlab.enforcement.receipt_format` parses the document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from bandwidth_config import Limits
from scionlab.delivery.evidence import Evidence
from scionlab.enforcement.models import LinkEnforcement
from scionlab.enforcement.problems import LIMITER_SILENT


@dataclass(frozen=True)
class Direction:
    """One direction of a link in the kernel, on device `dev`, with its counters; fields are named like the columns of
    `LinkEnforcement`. `drops` are the packets that did not pass: `refused` plus `dropped`, which are None from agents
    that do not separate them."""

    dev: str
    rate_kbit: int
    bytes: int
    packets: int
    drops: int
    refused: int | None = None
    dropped: int | None = None


@dataclass(frozen=True)
class LinkReceipt:
    """`limits` is what the configuration wanted at `observed_at`; a direction that the kernel lacks is None."""

    limits: Limits
    state: LinkEnforcement.State
    problem: str
    to_user: Direction | None
    from_user: Direction | None


@dataclass(frozen=True)
class Total:
    """Total of all links [kbit/s]: as configured, and as in force; None: none."""

    wanted_kbit: int
    to_user_kbit: int | None
    from_user_kbit: int | None


@dataclass(frozen=True)
class Receipt:
    """`version` is (G, H), None with `limits_version` if the agent has no bundle. `links` by interface id.

    `limits_digest` is the SHA-256 of the link_info.json in force in hexadecimal, empty without a bundle. `run`
    identifies one start of the agent, and `number` counts its receipts. `clock_skew_ms` is the agent's clock minus
    ours. `says_total`: the agent can enforce a total; `total` is None without one. Where the agent does not support
    them, `limits_digest`, `observe_only`, `devices` and `tests` (armed or running) are None; `run`, `sending_tests` and
    `test_kinds` (as in signed documents) are empty. Receipts with equal `links_digest` say the same of all links;
    empty: unknown.
    """

    agent_version: str
    version: tuple[int, int] | None
    limits_version: int | None
    observed_at: datetime
    links: Mapping[int, LinkReceipt]
    problems: list[dict[str, str]] = field(default_factory=list)
    limits_digest: str | None = None
    run: str = ""
    number: int | None = None
    clock_skew_ms: int | None = None
    evidence: Evidence | None = None
    says_total: bool = False
    total: Total | None = None
    observe_only: bool | None = None
    devices: list[str] | None = None
    tests: frozenset[str] | None = None
    sending_tests: str = ""
    test_kinds: frozenset[str] = frozenset()
    links_digest: str = ""

    @property
    def is_limiter_silent(self) -> bool:
        """Whether its content was read before the limiter became silent."""
        return any(one["code"] == LIMITER_SILENT for one in self.problems)

    @property
    def versions(self) -> tuple[int, int, int] | None:
        """(G, H, L)."""
        if self.version is None or self.limits_version is None:
            return None
        return *self.version, self.limits_version
