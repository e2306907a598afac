"""Receipts: what an attachment point reports that its kernel enforces.

The document itself is read by `scionlab.host_api.receipt_format`; here it is a value. docs/api.md is the contract.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.db import IntegrityError, transaction
from django.utils import timezone

from bandwidth_config import Limits, RuleError
from link_tests import TCP
from scionlab.configuration.evidence import Evidence, evidence_note, noted_version
from scionlab.configuration.render import config_for
from scionlab.enforcement.agents import SILENT_AFTER
from scionlab.enforcement.facts import is_about, shows_wanted
from scionlab.enforcement.problems import LIMITER_SILENT
from scionlab.enforcement.receipt_mails import enforced_mails
from scionlab.models import Host, HostReceipt, Link, LinkEnforcement, LinkTest, ReportGap, selectors
from scionlab.people.mail import mails_create
from scionlab.platform.metrics.names import RECEIPTS, SAVE_TO_KERNEL
from scionlab.platform.retry import retried
from scionlab.versions.issued import is_issued

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Direction:
    """One direction of a link as the kernel has it, on device `dev`, with its counters; named as the columns of
    `LinkEnforcement`. `drops` are the packets that did not pass: `refused` and `dropped`, None from agents that do not
    tell them apart."""

    dev: str
    rate_kbit: int
    bytes: int
    packets: int
    drops: int
    refused: int | None = None
    dropped: int | None = None


@dataclass(frozen=True)
class LinkReceipt:
    """`limits` is what the configuration wanted at `observed_at` of the receipt; a direction that the kernel does not
    have is None."""

    limits: Limits
    state: LinkEnforcement.State
    problem: str
    to_user: Direction | None
    from_user: Direction | None


@dataclass(frozen=True)
class Total:
    """What all links may carry together [kbit/s]: as the configuration wants it, and as it is in force; None: not."""

    wanted_kbit: int
    to_user_kbit: int | None
    from_user_kbit: int | None


@dataclass(frozen=True)
class Receipt:
    """`version` is (G, H), None with `limits_version` while the agent has no bundle. `links` by interface id.

    `limits_digest` is the SHA-256 of the link_info.json in force in hexadecimal, empty without a bundle, None from
    agents too old to say. `run` (empty from agents too old) names one start of the agent, and `number` counts its
    receipts. `clock_skew_ms` is the agent's clock minus ours. `says_total`: the agent can enforce a total; `total` is
    None without one. `observe_only`, `devices` and `tests` (armed or running) are None from agents too old to say,
    `sending_tests` is empty; `test_kinds` (as in signed documents) is empty from agents too old to say.
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

    @property
    def is_limiter_silent(self) -> bool:
        """It tells what was read before the limiter fell silent."""
        return any(one["code"] == LIMITER_SILENT for one in self.problems)

    @property
    def versions(self) -> tuple[int, int, int] | None:
        """(G, H, L)."""
        if self.version is None or self.limits_version is None:
            return None
        return *self.version, self.limits_version


@dataclass(frozen=True)
class Stored:
    """`stored` is false for a receipt that is not newer than the newest one; `unknown_links` have no Link here.

    `is_news`: it names another version than the one before it. `evidence_wanted`: the receipt names a document that we
    did not issue, and nothing proves yet that we signed it.
    """

    stored: bool
    unknown_links: list[int] = field(default_factory=list)
    is_news: bool = field(default=False, compare=False)  # for the log alone
    evidence_wanted: bool = False


@retried
def receipt_store(*, host_id: int, receipt: Receipt, now: datetime | None = None) -> Stored:
    """Keep the receipt as the host's newest, one row for each of its Links, the gap before it if the agent was silent,
    and the mails that follow. One transaction.

    An agent whose clock is ahead counts as being at our time: else one wrong hour would silence one that does not count
    its receipts for an hour. A receipt about another document than ours says nothing of any Link, and takes away what
    was known. Evidence in it is noted in a transaction of its own: it needs the host's row.
    """
    received_at = now or timezone.now()
    content = _content(host_id, receipt)
    try:
        stored = _store(host_id, receipt, content, received_at)
    except IntegrityError:
        # The host's first receipt came twice at once, or a Link was deleted meanwhile: both are settled by now.
        stored = _store(host_id, receipt, content, received_at)
    RECEIPTS.labels("stored" if stored.stored else "older").inc()
    if not stored.stored or content != HostReceipt.Content.FOREIGN:
        return stored
    if receipt.evidence is not None:
        evidence_note(host_id=host_id, evidence=receipt.evidence, now=received_at)
        return stored
    is_noted = noted_version(Host.objects.get(pk=host_id)) == receipt.versions
    return replace(stored, evidence_wanted=not is_noted)


def _content(host_id: int, receipt: Receipt) -> HostReceipt.Content:
    """Whether the receipt is about a document that we issued for the versions that it names."""
    if receipt.limits_digest is None:
        return HostReceipt.Content.COUNTED
    if receipt.versions is None:
        return HostReceipt.Content.PROVEN  # that there is none
    if is_issued(host_id=host_id, version=receipt.versions, digest=receipt.limits_digest):
        return HostReceipt.Content.PROVEN
    if _issue_newest(host_id) == (receipt.versions, receipt.limits_digest):
        return HostReceipt.Content.PROVEN
    return HostReceipt.Content.FOREIGN


def _issue_newest(host_id: int) -> tuple[tuple[int, int, int], str] | None:
    """Render what is newest: its document may be one that was issued before this service began to note them.

    Returns its (G, H, L) and its digest, None where it cannot be made.
    """
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    if host.AS_id is None:
        return None
    try:
        newest = config_for(host)
    except RuleError as exc:
        logger.error("config.refused host=%s code=%s %s", host_id, exc.code, exc.message)
        return None
    generation = int(newest.version.partition(".")[0])
    return (generation, newest.config_version, newest.limits_version), newest.limits_digest


def _is_newer(receipt: Receipt, observed_at: datetime, newest: HostReceipt) -> bool:
    """By the agent's count, which no clock disturbs; by `observed_at` from agents too old to count."""
    if not receipt.run:
        return observed_at > newest.observed_at
    return receipt.run != newest.run or (receipt.number or 0) > (newest.number or 0)


@transaction.atomic
def _store(host_id: int, receipt: Receipt, content: HostReceipt.Content, received_at: datetime) -> Stored:
    # Not the host's row: services lock Links before hosts, and we are about to refer to Links.
    newest = HostReceipt.objects.select_for_update(of=("self",), no_key=True).filter(host_id=host_id).first()
    observed_at = min(receipt.observed_at, received_at)
    if newest is not None and not _is_newer(receipt, observed_at, newest):
        logger.info("receipt.older host=%s observed_at=%s newest=%s", host_id, observed_at, newest.observed_at)
        return Stored(stored=False)
    if newest is not None and received_at - newest.received_at > SILENT_AFTER:
        ReportGap.objects.create(host_id=host_id, begins_at=newest.received_at, ends_at=received_at)
    links = selectors.limited_links(host_id)
    old = {row.link_id: row for row in LinkEnforcement.objects.filter(link__in=links.values())}
    is_generation = receipt.version is not None and receipt.version[0] == selectors.generation()
    is_ours = is_generation and content != HostReceipt.Content.FOREIGN
    rows = [
        _row(link, receipt, receipt.links[interface_id], old.get(link.pk), received_at)
        for interface_id, link in links.items()
        if is_ours and interface_id in receipt.links and _knows(receipt, link)
    ]
    if receipt.is_limiter_silent:  # what was not known before is not known now: nothing counts as in force from here
        rows = [row for row in rows if row.link_id in old and row.since == old[row.link_id].since]
    _replace(rows, old)
    _note_delays(links.values(), {row.link_id: row for row in rows}, old)
    former = newest and (newest.generation, newest.config_version, newest.limits_version)
    saved = _save_host_receipt(newest or HostReceipt(host_id=host_id), receipt, content, observed_at, received_at)
    if is_ours and receipt.tests and not receipt.is_limiter_silent:
        armed = LinkTest.objects.filter(test_id__in=receipt.tests, link__interface_a__host=host_id, armed_at=None)
        armed.update(armed_at=received_at)
    mails_create(enforced_mails(saved, links.values(), {row.link_id: row for row in rows}, old))
    unknown = sorted(receipt.links.keys() - links.keys())
    if unknown:
        logger.warning("receipt.unknown_links host=%s interface_ids=%s", host_id, unknown[:20])
    return Stored(stored=True, unknown_links=unknown, is_news=receipt.versions not in {former, None})


def _knows(receipt: Receipt, link: Link) -> bool:
    """The receipt's configuration has the Link as it is now, whatever its bandwidth there.

    In an older one the interface id may be that of a Link that is gone, with another person's counters; one from the
    future (after a restored backup) is not ours.
    """
    host = link.interface_a.host
    return receipt.version is not None and link.wanted_config_version <= receipt.version[1] <= host.config_version


def _row(
    link: Link, receipt: Receipt, said: LinkReceipt, old: LinkEnforcement | None, received_at: datetime
) -> LinkEnforcement:
    row = LinkEnforcement(
        link=link,
        kbit=said.limits.lowest_kbit,
        to_user_kbit=said.limits.to_user_kbit,
        from_user_kbit=said.limits.from_user_kbit,
        observed_at=receipt.observed_at,
        state=said.state,
        problem=said.problem,
        since=received_at,
        received_at=received_at,
        generation=receipt.version[0] if receipt.version else None,
        config_version=receipt.version[1] if receipt.version else None,
        limits_version=receipt.limits_version,
    )
    for name, direction in (("to_user", said.to_user), ("from_user", said.from_user)):
        if direction is not None:
            for column, value in vars(direction).items():
                setattr(row, f"{name}_{column}", value)
    if old is not None and _is_as_before(link, row, old):
        row.since = old.since
    return row


def _is_as_before(link: Link, row: LinkEnforcement, old: LinkEnforcement) -> bool:
    """The kernel has the same, and for the Link as it is now: where that changed since, it counts from now."""
    if (row.state, is_about(link, row)) != (old.state, is_about(link, old)):
        return False
    if row.state == LinkEnforcement.State.OBSERVED:
        return True
    if row.state != LinkEnforcement.State.ENFORCED:
        return row.wanted == old.wanted
    if (row.wanted, row.in_kernel) == (old.wanted, old.in_kernel):
        return True
    # Other numbers, because a timed limit began, made a step or ended between the two: as was wanted all the time.
    return shows_wanted(link, row) and shows_wanted(link, old)


def _replace(rows: list[LinkEnforcement], old: Mapping[int, LinkEnforcement]) -> None:
    """A Link that the newest receipt does not speak of has no row: nothing is known of it."""
    silent = old.keys() - {row.link_id for row in rows}
    if silent:
        LinkEnforcement.objects.filter(link_id__in=silent).delete()
    if rows:
        names = [one.name for one in LinkEnforcement._meta.concrete_fields if one.name not in {"id", "link"}]
        LinkEnforcement.objects.bulk_create(
            rows, update_conflicts=True, unique_fields=["link"], update_fields=names, batch_size=1000
        )


def _save_host_receipt(
    row: HostReceipt, receipt: Receipt, content: HostReceipt.Content, observed_at: datetime, received_at: datetime
) -> HostReceipt:
    row.agent_version = receipt.agent_version
    row.generation, row.config_version = receipt.version or (None, None)
    row.limits_version = receipt.limits_version
    row.limits_digest, row.content = receipt.limits_digest or "", content
    row.run, row.number = receipt.run, receipt.number
    row.observed_at, row.received_at = observed_at, received_at
    row.clock_skew_ms = receipt.clock_skew_ms
    row.problems = receipt.problems
    row.devices, row.observe_only = receipt.devices, receipt.observe_only
    row.says_total, row.says_tests = receipt.says_total, receipt.tests is not None
    row.sending_tests, row.says_tcp_tests = receipt.sending_tests, TCP in receipt.test_kinds
    total = receipt.total
    row.total_wanted_kbit = None if total is None else total.wanted_kbit
    row.total_to_user_kbit = None if total is None else total.to_user_kbit
    row.total_from_user_kbit = None if total is None else total.from_user_kbit
    row.save()
    return row


def _note_delays(
    links: Iterable[Link], rows: Mapping[int, LinkEnforcement], old: Mapping[int, LinkEnforcement]
) -> None:
    """How long a change took, for each Link of which the former receipt knew an older configuration. (After a drift, or
    a silence, the kernel has what was wanted long before.)"""
    for link in links:
        row, former = rows.get(link.pk), old.get(link.pk)
        if row is not None and shows_wanted(link, row) and (former is None or not is_about(link, former)):
            took_s = (row.received_at - link.changed_at).total_seconds()
            SAVE_TO_KERNEL.observe(max(took_s, 0.0))  # clocks step backwards; a sum must not
