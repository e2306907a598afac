"""Writes the audit log: changes of bandwidths, and of what manages a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from bandwidth_config import Limits
from scionlab.accounts.models import User
from scionlab.platform.client_address import from_address
from scionlab.testbed.models import AS, AttachmentPoint, BandwidthChange, Host, Link
from scionlab.testbed.models.link_settings import LINK_SETTINGS, LinkSetting

Kind = BandwidthChange.Kind
Subject = Link | AttachmentPoint | Host | AS | str
_SUBJECTS: Final[dict[str, str]] = {
    Kind.AP_DEFAULT: "default of {}",
    Kind.AP_TOTAL: "total of {}",
    Kind.AP_METADATA: "path metadata of {}",
}


def note(
    of: Subject,
    *,
    kind: str,
    actor: User | None,
    detail: str = "",
    reason: str = "",
    old: int | None = None,
    new: int | None = None,
) -> None:
    """One change: what happened to `of` in words (`detail`), or numbers [kbit/s]."""
    change_of(of, kind=kind, actor=actor, detail=detail, reason=reason, old=old, new=new).save()


def change_of(
    of: Subject,
    *,
    kind: str,
    actor: User | None,
    detail: str = "",
    reason: str = "",
    old: int | None = None,
    new: int | None = None,
) -> BandwidthChange:
    """As `note`, not saved."""
    link = of if isinstance(of, Link) else None
    ap = of if isinstance(of, AttachmentPoint) else None if link is None else link.attachment_point
    subject = host_subject(of) if isinstance(of, Host) else _SUBJECTS.get(kind, "{}").format(of)
    return BandwidthChange(
        kind=kind,
        subject=subject[:200],
        link=link,
        attachment_point=ap,
        actor=actor,
        actor_email="" if actor is None else actor.email,  # for when the account is deleted
        address=from_address.get(),
        old_kbit=old,
        new_kbit=new,
        detail=detail[:200],
        reason=reason[:200],
    )


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
        row = change_of(link, kind=Kind.LINK, actor=actor, reason=reason)
        row.old_kbit, row.old_from_user_kbit = old.to_columns() if old else (None, None)
        row.new_kbit, row.new_from_user_kbit = new.to_columns() if new else (None, None)
        rows.append(row)
    BandwidthChange.objects.bulk_create(rows, batch_size=1000)


def note_setting(link: Link, setting: LinkSetting, *, actor: User | None, reason: str = "") -> None:
    """The new value of a setting."""
    detail = setting.said(getattr(link, setting.name))
    note(link, kind=setting.kind[0], actor=actor, detail=detail, reason=reason)


def note_observing(ap: AttachmentPoint, *, actor: User | None, reason: str = "") -> None:
    """Whether all of its Links are now observed only, or limited again."""
    detail = LINK_SETTINGS["observe_only"].said(ap.observe_only)
    note(ap, kind=Kind.AP_OBSERVE, actor=actor, detail=detail, reason=reason)


def host_subject(host: Host) -> str:
    """Identifies the host in its rows; labels may repeat, host ids do not."""
    return f"{host}, host id {host.uid}"[-200:]


def note_hosts(hosts: Iterable[Host], *, kind: str, actor: User | None, detail: str, reason: str = "") -> None:
    """For many hosts; one statement per thousand."""
    rows = [change_of(one, kind=kind, actor=actor, detail=detail, reason=reason) for one in hosts]
    BandwidthChange.objects.bulk_create(rows, batch_size=1000)


@dataclass(frozen=True)
class Issue:
    """Something issued: `kind` is CERTIFICATE or TRC, `subject` its owner or id, `detail` a description."""

    kind: BandwidthChange.Kind
    subject: str
    detail: str


def note_issues(issues: Iterable[Issue], *, actor: User | None, reason: str = "") -> None:
    """One statement per thousand."""
    rows = [change_of(one.subject, kind=one.kind, actor=actor, detail=one.detail, reason=reason) for one in issues]
    BandwidthChange.objects.bulk_create(rows, batch_size=1000)
