"""Writes the audit log: changes of bandwidths, and of what manages a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.platform.client_address import from_address
from scionlab.testbed.models import AS, AttachmentPoint, BandwidthChange, Host, Link

ALL_HOSTS = "all hosts"  # subject of a row about all hosts


def note_link(link: Link, *, actor: User | None, old: Limits | None, new: Limits | None, reason: str = "") -> None:
    """`old` None: the Link is new; `new` None: it is removed. Unchanged numbers are skipped."""
    note_links([(link, old, new)], actor=actor, reason=reason)


def note_links(
    changes: Iterable[tuple[Link, Limits | None, Limits | None]], *, actor: User | None, reason: str = ""
) -> None:
    """For many Links with old and new limits; one statement per thousand."""
    rows = []
    for link, old, new in changes:
        if old == new:
            continue
        row = BandwidthChange(kind=BandwidthChange.Kind.LINK, **_about(link, actor), reason=reason[:200])
        row.old_kbit, row.old_from_user_kbit = old.to_columns() if old else (None, None)
        row.new_kbit, row.new_from_user_kbit = new.to_columns() if new else (None, None)
        rows.append(row)
    BandwidthChange.objects.bulk_create(rows, batch_size=1000)


def note_timed_limit(link: Link, *, actor: User | None, detail: str, reason: str = "") -> None:
    """`detail`: what happened, e.g. "cancelled: outage from ... until ..."."""
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind.TIMED_LIMIT, **_about(link, actor), detail=detail[:200], reason=reason[:200]
    )


def note_active(link: Link, *, actor: User | None, reason: str = "") -> None:
    """Whether `link` is now active."""
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind.LINK_ACTIVE,
        **_about(link, actor),
        detail="Activated" if link.active else "Deactivated: in no configuration",
        reason=reason[:200],
    )


def _about(link: Link, actor: User | None) -> dict[str, Any]:
    return {
        "subject": str(link)[:200],
        "link": link,
        "attachment_point": link.attachment_point,
        "actor": actor,
        **origin_of(actor),
    }


def note_default(
    ap: AttachmentPoint | None,
    *,
    actor: User | None,
    old: int | None,
    new: int | None,
    detail: str = "",
    reason: str = "",
) -> None:
    """`ap` None: the site default. `detail` in place of the numbers, where there are none."""
    kinds = BandwidthChange.Kind
    BandwidthChange.objects.create(
        kind=kinds.SITE_DEFAULT if ap is None else kinds.AP_DEFAULT,
        subject="site default" if ap is None else f"default of {ap}"[:200],
        attachment_point=ap,
        actor=actor,
        **origin_of(actor),
        old_kbit=old,
        new_kbit=new,
        detail=detail,
        reason=reason[:200],
    )


def note_total(ap: AttachmentPoint, *, actor: User | None, old: int | None, new: int | None, reason: str = "") -> None:
    """The total of `ap`."""
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind.AP_TOTAL,
        subject=f"total of {ap}"[:200],
        attachment_point=ap,
        actor=actor,
        **origin_of(actor),
        old_kbit=old,
        new_kbit=new,
        reason=reason[:200],
    )


def note_observing(of: AttachmentPoint | Link, *, actor: User | None, reason: str = "") -> None:
    """Whether `of` is now observed only, or limited again."""
    if isinstance(of, Link):
        kind, about = BandwidthChange.Kind.LINK_OBSERVE, _about(of, actor)
    else:
        kind = BandwidthChange.Kind.AP_OBSERVE
        about = {"subject": str(of)[:200], "attachment_point": of, "actor": actor, **origin_of(actor)}
    BandwidthChange.objects.create(
        kind=kind,
        **about,
        detail="Observed only: nothing is limited" if of.observe_only else "Limited again, no longer observed only",
        reason=reason[:200],
    )


def note_metadata(ap: AttachmentPoint, *, actor: User | None, detail: str, reason: str = "") -> None:
    """`detail`: what happened to the path metadata of `ap`, in words."""
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind.AP_METADATA,
        subject=f"path metadata of {ap}"[:200],
        attachment_point=ap,
        actor=actor,
        **origin_of(actor),
        detail=detail[:200],
        reason=reason[:200],
    )


def note_as(as_: AS, *, actor: User | None, detail: str, reason: str = "") -> None:
    """`detail`: what happened to the infrastructure AS, in words."""
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind.AS,
        subject=str(as_)[:200],
        actor=actor,
        **origin_of(actor),
        detail=detail[:200],
        reason=reason[:200],
    )


def host_subject(host: Host) -> str:
    """Identifies the host in its rows; labels may repeat, host ids do not."""
    return f"{host}, host id {host.uid}"[-200:]


def note_host(host: Host, *, kind: str, actor: User | None, detail: str, reason: str = "") -> None:
    """`detail`: what happened to the host, in words. `kind` is one of those about a host."""
    note_hosts([host], kind=kind, actor=actor, detail=detail, reason=reason)


def note_hosts(hosts: Iterable[Host], *, kind: str, actor: User | None, detail: str, reason: str = "") -> None:
    """For many hosts; one statement per thousand."""
    rows = [
        BandwidthChange(
            kind=BandwidthChange.Kind(kind),
            subject=host_subject(host),
            actor=actor,
            **origin_of(actor),
            detail=detail[:200],
            reason=reason[:200],
        )
        for host in hosts
    ]
    BandwidthChange.objects.bulk_create(rows, batch_size=1000)


def note_all_hosts(*, kind: str, actor: User | None, detail: str) -> None:
    """One row for all hosts."""
    BandwidthChange.objects.create(
        kind=BandwidthChange.Kind(kind), subject=ALL_HOSTS, actor=actor, **origin_of(actor), detail=detail[:200]
    )


@dataclass(frozen=True)
class Issue:
    """Something issued: `kind` is CERTIFICATE or TRC, `subject` its owner or id, `detail` a description."""

    kind: BandwidthChange.Kind
    subject: str
    detail: str


def note_issues(issues: Iterable[Issue], *, actor: User | None, reason: str = "") -> None:
    """One statement per thousand."""
    rows = [
        BandwidthChange(
            kind=one.kind,
            subject=one.subject[:200],
            actor=actor,
            **origin_of(actor),
            detail=one.detail[:200],
            reason=reason[:200],
        )
        for one in issues
    ]
    BandwidthChange.objects.bulk_create(rows, batch_size=1000)


def origin_of(actor: User | None) -> dict[str, str | None]:
    """The actor as text, for when the account is deleted."""
    return {"actor_email": "" if actor is None else actor.email, "address": from_address.get()}
