"""The receipt: what an agent reports that an attachment point's kernel enforces (docs/api.md)."""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import cached_property
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from bandwidth_config import MAX_BANDWIDTH_KBIT, MAX_TOTAL_KBIT, MIN_TOTAL_KBIT, Limits
from scionlab.delivery.evidence import Evidence
from scionlab.delivery.host_api.documents import (
    MAX_VERSION,
    Document,
    Hex32,
    Hex64,
    InterfaceId,
    Kind,
    Text16,
    Text32,
    Text200,
    Text2000,
    Time,
    Version,
    Versioned,
    WrongError,
    time_of,
    version_of,
)
from scionlab.enforcement.counters import MAX_COUNT, Count, Counters
from scionlab.enforcement.explanations import LIMITER_SILENT

MAX_BYTES: Final = 8 * 1024 * 1024
# Every user has the credentials of a host, that of their AS.
MAX_BYTES_WITHOUT_LINKS: Final = 64 * 1024

Kbit = Annotated[int, Meta(ge=0, le=MAX_BANDWIDTH_KBIT)]
TotalKbit = Annotated[int, Meta(ge=0, le=MAX_TOTAL_KBIT)]


class Direction(Counters, frozen=True, gc=False, kw_only=True):
    """One direction of a link in the kernel, on device `dev`, with its counters."""

    dev: Text32
    rate_kbit: Count
    backlog_bytes: Count

    def __post_init__(self) -> None:
        if self.refused is None or self.dropped is None:
            if self.refused is not self.dropped:
                raise WrongError("refused", 'it exactly if there is a "dropped"')
        elif self.refused + self.dropped != self.drops:
            raise WrongError("drops", 'the sum of "refused" and "dropped"')


class LinkReceipt(Document, frozen=True, gc=False):
    """A link as its configuration wanted it at `observed_at`; a direction that the kernel lacks is None."""

    kbit: Annotated[Kbit, Meta(description="The lower of both directions.")]
    state: Literal["enforced", "observed", "error"]
    to_user: Direction | None
    from_user: Direction | None
    to_user_kbit: Kbit | None = None
    from_user_kbit: Kbit | None = None
    problem: Text2000 | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        if self.state == "error":
            if not isinstance(self.problem, str):
                raise WrongError("problem", "a sentence with the state error")
        elif self.to_user is None or self.from_user is None:
            name = "to_user" if self.to_user is None else "from_user"
            raise WrongError(name, f"what the kernel has with the state {self.state}")

    @property
    def limits(self) -> Limits:
        """An agent with one limit for both directions sends only that."""
        return Limits(*(self.kbit if one is None else one for one in (self.to_user_kbit, self.from_user_kbit)))


class Total(Document, frozen=True):
    """Total of all links [kbit/s]: as configured, and as in force; None: none."""

    wanted_kbit: Annotated[int, Meta(ge=MIN_TOTAL_KBIT, le=MAX_TOTAL_KBIT)]
    to_user_kbit: TotalKbit | None
    from_user_kbit: TotalKbit | None


class ReportedProblem(Document, frozen=True):
    code: Annotated[str, Meta(max_length=64, pattern=r"^[^\x00]*$")]
    subject: Text200
    message: Text2000


class Receipt(Versioned, frozen=True, dict=True, rename={"written_version": "version", "written_at": "observed_at"}):
    """What is absent is not supported by the agent. Unknown `test_kinds` are kept: they come from a newer agent."""

    agent_version: Text32
    written_version: Annotated[Version | None, Meta(description="Version G.H that is enforced; null: none.")]
    limits_version: Annotated[int, Meta(ge=0, le=MAX_VERSION)] | None
    written_at: Time
    writes: Count
    links: Annotated[dict[InterfaceId, LinkReceipt], Meta(description="Keyed by interface id.")]
    problems: Annotated[list[ReportedProblem], Meta(max_length=1000)]
    limits_digest: Annotated[
        Hex64 | UnsetType | None,
        Meta(description="SHA-256 of the link_info.json in force; null exactly if version is null."),
    ] = UNSET
    run: Annotated[Hex32 | None, Meta(description="Identifies one run of the agent; only together with number.")] = None
    number: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None,
        Meta(description="Sequence number of this receipt within the run."),
    ] = None
    clock_skew_ms: Annotated[
        Annotated[int, Meta(ge=-MAX_COUNT, le=MAX_COUNT)] | None,
        Meta(description="The agent's clock minus the service's."),
    ] = None
    evidence: Annotated[
        Evidence | None,
        Meta(description="From the manifest in force, verbatim; sent after a response with evidence_wanted."),
    ] = None
    total: Annotated[Total | UnsetType | None, Meta(description="Total of all links; null: no total.")] = UNSET
    observe_only: Annotated[bool | None, Meta(description="Nothing is limited on this host.")] = None
    devices: Annotated[
        Annotated[list[Text32], Meta(max_length=10_000)] | None,
        Meta(description="Names of the devices on which packets are classified."),
    ] = None
    tests: Annotated[
        Annotated[list[Hex32], Meta(max_length=33_000)] | None,  # eight per link
        Meta(description="Ids of the tests of links that are armed or running."),
    ] = None
    sending_tests: Annotated[
        Literal["on", "off", "stopped"] | None, Meta(description="Whether the operator lets tests send.")
    ] = None
    test_kinds: Annotated[list[Text16], Meta(max_length=16, description="Kinds of tests that the agent supports.")] = []

    def __post_init__(self) -> None:
        if (self.written_version is None) != (self.limits_version is None):
            raise WrongError("limits_version", 'null exactly if "version" is null')
        if self.limits_digest is not UNSET and (self.limits_digest is None) != (self.written_version is None):
            raise WrongError("limits_digest", 'null exactly if "version" is null')
        if (self.run is None) != (self.number is None):
            raise WrongError("number", 'it exactly if there is a "run"')
        _ = self.version

    @cached_property
    def version(self) -> tuple[int, int] | None:
        """(G, H); None if the agent has no bundle."""
        return None if self.written_version is None else version_of(self.written_version)

    @property
    def versions(self) -> tuple[int, int, int] | None:
        """(G, H, L)."""
        if self.version is None or self.limits_version is None:
            return None
        return *self.version, self.limits_version

    @cached_property
    def observed_at(self) -> datetime:
        found = time_of(self.written_at)
        assert found is not None, "`parse_receipt` has checked it"  # noqa: S101
        return found

    @cached_property
    def links_digest(self) -> str:
        """Receipts with the same one say the same of all links."""
        return hashlib.sha256(msgspec.json.encode(self.links)).hexdigest()

    @property
    def is_limiter_silent(self) -> bool:
        """Whether its content was read before the limiter became silent."""
        return any(one.code == LIMITER_SILENT for one in self.problems)


RECEIPT: Final = Kind(Receipt, "receipt_invalid", "The receipt")


def parse_receipt(content: bytes) -> Receipt:
    """Raises only `DocumentError`, for any bytes."""
    receipt = RECEIPT.read(content)
    RECEIPT.time_near(receipt.written_at, "observed_at")
    return receipt
