"""Stores receipts: what an attachment point reports about its kernel.

`scionlab.enforcement.receipt_format` parses the document; docs/api.md is the contract.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec
from django.db import IntegrityError, transaction
from msgspec import UNSET

from bandwidth_config import RuleError
from contract.link_tests import TCP
from scionlab.accounts.mail import mails_create
from scionlab.delivery.evidence import evidence_note, noted_version
from scionlab.delivery.host_api.documents import MAX_VERSION
from scionlab.delivery.issued import is_issued
from scionlab.delivery.render import config_for
from scionlab.enforcement.agents import SILENT_AFTER, agent_of
from scionlab.enforcement.doubts import contradiction, is_superseded, note_run
from scionlab.enforcement.explanations import LIMITER_SILENT
from scionlab.enforcement.facts import is_about, shows_wanted
from scionlab.enforcement.models import HostReceipt, ReportGap
from scionlab.enforcement.problems import reported
from scionlab.enforcement.receipt_changes import ReceiptChanges, all_news, compare, mark_of, repeats, same_again
from scionlab.enforcement.receipt_format import Receipt
from scionlab.enforcement.receipt_mails import enforced_mails
from scionlab.platform.clock import database_now
from scionlab.platform.metrics.names import RECEIPTS, SAVE_TO_KERNEL
from scionlab.platform.retry import retried
from scionlab.testbed import selectors
from scionlab.testbed.models import Host

logger = logging.getLogger(__name__)

# What a receipt about our content says for other apps: host, receipt, time; in its transaction.
FACTS: Final[list[Callable[[int, Receipt, datetime], None]]] = []


@dataclass(frozen=True)
class Stored:
    """Result. `stored` is false if the receipt is not newer than the stored one; `unknown_links` have no Link here.
    `is_news`: its version differs from that of the receipt before. `evidence_wanted`: it names a document that we did
    not issue and whose signature is not proven yet."""

    stored: bool
    unknown_links: list[int] = field(default_factory=list)
    is_news: bool = field(default=False, compare=False)  # only for the log
    evidence_wanted: bool = False


@retried
def receipt_store(*, host_id: int, receipt: Receipt, now: datetime | None = None, address: str | None = None) -> Stored:
    """Store the host's newest receipt, one row per Link, the gap before it, and the mails that follow, in one
    transaction. `address` is that of the sender. A receipt with a time in the future is dated now: otherwise an agent
    that does not number its receipts would be ignored until then. A receipt about a foreign document says nothing about
    Links and invalidates what was known. Its evidence is stored in a separate transaction, which needs the host's
    row."""
    received_at = now or database_now()
    if receipt.observed_at > received_at:
        receipt = msgspec.structs.replace(receipt, written_at=received_at.isoformat())
    content = _content(host_id, receipt)
    try:
        stored = _store(host_id, receipt, content, received_at, address)
    except IntegrityError:
        # Concurrent first receipts of a host, or a Link deleted meanwhile: both are resolved on the next try.
        stored = _store(host_id, receipt, content, received_at, address)
    RECEIPTS.labels("stored" if stored.stored else "older").inc()
    if not stored.stored or content != HostReceipt.Content.FOREIGN:
        return stored
    if receipt.evidence is not None:
        evidence_note(host_id=host_id, evidence=receipt.evidence, now=received_at)
        return stored
    is_noted = noted_version(Host.objects.get(pk=host_id)) == receipt.versions
    return replace(stored, evidence_wanted=not is_noted)


def receipt_refused(*, host_id: int, why: str) -> None:
    """Keep why the newest receipt was refused, so that pages say more than that there is none."""
    HostReceipt.objects.filter(host=host_id).exclude(refusal=why[:300]).update(refusal=why[:300])


def _content(host_id: int, receipt: Receipt) -> HostReceipt.Content:
    """Whether the receipt is about a document that we issued for its versions."""
    if receipt.limits_digest is UNSET:
        return HostReceipt.Content.COUNTED
    if receipt.versions is None or receipt.limits_digest is None:
        return HostReceipt.Content.PROVEN  # it has no document
    if is_issued(host_id=host_id, version=receipt.versions, digest=receipt.limits_digest):
        return HostReceipt.Content.PROVEN
    return HostReceipt.Content.PROVEN if _is_newest(host_id, receipt) else HostReceipt.Content.FOREIGN


def _is_newest(host_id: int, receipt: Receipt) -> bool:
    """Render the newest configuration: a restored database may not have issued it yet. False if it cannot be
    rendered."""
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    if host.AS_id is None:
        return False
    try:
        newest = config_for(host)
    except RuleError as exc:
        logger.error("config.refused host=%s code=%s %s", host_id, exc.code, exc.message)
        return False
    return (newest.version, newest.limits_digest) == (receipt.versions, receipt.limits_digest)


def _is_newer(receipt: Receipt, newest: HostReceipt) -> bool:
    """Compare the agent's count, which is independent of clocks; without one, `observed_at`."""
    if not receipt.run:
        return receipt.observed_at > newest.observed_at
    return receipt.run != newest.run or (receipt.number or 0) > (newest.number or 0)


@transaction.atomic
def _store(
    host_id: int, receipt: Receipt, content: HostReceipt.Content, received_at: datetime, address: str | None
) -> Stored:
    # Does not lock the host's row: services lock Links before hosts, and Links are referenced next.
    rows = HostReceipt.objects.select_for_update(of=("self",), no_key=True).select_related("host")
    newest = rows.filter(host_id=host_id).first()
    if newest is not None and (
        is_superseded(newest, receipt, received_at=received_at, address=address) or not _is_newer(receipt, newest)
    ):
        times = (receipt.observed_at, newest.observed_at)
        logger.info("receipt.older host=%s address=%s observed_at=%s newest=%s", host_id, address, *times)
        return Stored(stored=False)
    if newest is not None and received_at - newest.received_at > SILENT_AFTER:
        ReportGap.objects.create(host_id=host_id, begins_at=newest.received_at, ends_at=received_at)
    is_generation = receipt.version is not None and receipt.version[0] == selectors.generation()
    is_ours = is_generation and content != HostReceipt.Content.FOREIGN
    former_at = received_at if newest is None else _read_at(newest)
    was_void = newest is not None and agent_of(newest.host, "", now=newest.received_at).is_void
    if newest is not None and is_ours and repeats(receipt, newest, content):
        said = same_again(host_id)
    else:
        said = compare(host_id, receipt, is_ours=is_ours, received_at=received_at, former_at=former_at)
    said.store()
    _note_delays(said, received_at)
    former = newest and (newest.generation, newest.config_version, newest.limits_version)
    if newest is not None:
        note_run(newest, receipt, received_at=received_at)
    row = newest or HostReceipt(host_id=host_id)
    row.links_digest = mark_of(receipt.links_digest) if said.is_plain else ""
    row.address, row.contradiction = address, contradiction(host_id, receipt)
    saved = _save_host_receipt(row, receipt, content, received_at)
    if is_ours:
        for store in FACTS:
            store(host_id, receipt, received_at)
    mails_create(enforced_mails(saved, all_news(host_id) if was_void else said, former_at=former_at))
    if said.unknown:
        logger.warning("receipt.unknown_links host=%s interface_ids=%s", host_id, said.unknown[:20])
    return Stored(stored=True, unknown_links=said.unknown, is_news=receipt.versions not in {former, None})


def _read_at(newest: HostReceipt) -> datetime:
    """When the limiter said it at the latest: one that is silent said it before the receipt was sent."""
    is_limiter_silent = any(one.code == LIMITER_SILENT for one in reported(newest.problems))
    return min(newest.observed_at, newest.received_at) if is_limiter_silent else newest.received_at


def _save_host_receipt(
    row: HostReceipt,
    receipt: Receipt,
    content: HostReceipt.Content,
    received_at: datetime,
) -> HostReceipt:
    row.agent_version = receipt.agent_version
    row.generation, row.config_version = receipt.version or (None, None)
    row.limits_version = receipt.limits_version
    row.limits_digest, row.content = receipt.limits_digest or "", content
    row.run, row.number = receipt.run or "", receipt.number
    row.observed_at, row.received_at, row.refusal = receipt.observed_at, received_at, ""
    skew_ms = receipt.clock_skew_ms  # limited to the column's range, 24 days: such a clock is reported anyway
    row.clock_skew_ms = None if skew_ms is None else max(-MAX_VERSION, min(skew_ms, MAX_VERSION))
    row.problems = [msgspec.structs.asdict(one) for one in receipt.problems]
    row.devices, row.observe_only = receipt.devices, receipt.observe_only
    row.says_total, row.says_tests = receipt.total is not UNSET, receipt.tests is not None
    row.sending_tests, row.says_tcp_tests = receipt.sending_tests or "", TCP in receipt.test_kinds
    total = receipt.total or None
    row.total_to_user_kbit = None if total is None else total.to_user_kbit
    row.total_from_user_kbit = None if total is None else total.from_user_kbit
    row.save()
    return row


def _note_delays(said: ReceiptChanges, received_at: datetime) -> None:
    """Record the delay of a change, for each Link whose previous receipt had an older configuration. (Not after drift
    or silence: then the kernel had it long before.)"""
    for link in said.links:
        row, former = said.rows.get(link.pk), said.old.get(link.pk)
        is_news = former is None or not is_about(link, former)
        if is_news and row is not None and shows_wanted(link, row, at=received_at):
            took_s = (received_at - link.changed_at).total_seconds()
            SAVE_TO_KERNEL.observe(max(took_s, 0.0))  # clocks step backwards; a counter must not
