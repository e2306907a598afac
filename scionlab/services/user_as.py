"""User ASes: create, edit, (de)activate and delete one, with its attachments."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import transaction

from scionlab.models import AttachmentPoint, BorderRouter, Host, Link, User, UserAS
from scionlab.services import allocation, audit
from scionlab.services.attachments import (
    DEFAULT_PORT,
    MAX_ATTACHMENTS,
    AttachmentSpec,
    attachment_point_id,
    check_attachments,
    provider_links,
    raise_first,
)
from scionlab.services.changes import Changes, read_links, view_of
from scionlab.services.errors import FieldRuleError
from scionlab.services.policy import settle_default
from scionlab.services.queue import RENDER_HOST, queue_after_commit
from scionlab.services.wiring import link_add, link_edit, link_remove, park_ports

__all__ = [
    "DEFAULT_PORT",
    "MAX_ATTACHMENTS",
    "AttachmentSpec",
    "check_attachments",
    "check_quota",
    "user_as_create",
    "user_as_delete",
    "user_as_set_active",
    "user_as_update",
]

logger = logging.getLogger(__name__)


def check_quota(owner: User) -> None:
    """Raises `FieldRuleError` (`quota_exceeded`) when the owner may not have one more AS."""
    count = UserAS.objects.filter(owner=owner).count()
    if count >= owner.as_quota:
        has = "1 AS" if count == 1 else f"{count} ASes"
        raise FieldRuleError(
            "quota_exceeded",
            f"{owner.email} has {has}, and the quota is {owner.as_quota}. Delete one that is not needed, or ask the "
            "administrators for a higher quota.",
            "label",
        )


@transaction.atomic
def user_as_create(
    *,
    owner: User,
    actor: User | None,
    label: str,
    installation_type: str,
    attachments: Sequence[AttachmentSpec],
    as_id: int | None = None,
) -> UserAS:
    """Make a user AS with its host and border router and one provider Link per attachment.

    `as_id` None: the smallest number that is free; another one is for seeds and laboratories, and must be free.
    H rises once for the host of each attachment point. Raises `FieldRuleError` (quota, the rules of attachments, an
    attachment point or VPN that is full, an id that is not for user ASes or is taken).
    """
    allocation.lock_as_ids()
    check_quota(allocation.lock_user(owner.pk))
    changes = _lock_attachment_points({spec.attachment_point_id for spec in attachments})
    _check_fields(label, installation_type)
    raise_first(check_attachments(attachments, user_as=None))
    user_as = UserAS.objects.create(
        isd=AttachmentPoint.objects.get(pk=attachments[0].attachment_point_id).AS.isd,
        as_id=allocation.free_user_as_id() if as_id is None else allocation.checked_user_as_id(as_id),
        label=label,
        owner=owner,
        installation_type=installation_type,
    )
    host = _host_of(user_as)
    for index, spec in enumerate(attachments):
        link = link_add(user_as, host, spec, index=index)
        audit.note_link(link, actor=actor, old=None, new=link.bandwidth_kbit)
        changes.note(link.pk, None, view_of(link))
    changes.carry_out(without_hosts=frozenset({host.pk}))  # nobody has fetched anything of a new host
    queue_after_commit(RENDER_HOST, host.pk)
    logger.info("user_as.created as=%s links=%s actor=%s", user_as.isd_as, len(attachments), actor and actor.pk)
    return user_as


@transaction.atomic
def user_as_update(
    *, user_as_id: int, actor: User | None, label: str, installation_type: str, attachments: Sequence[AttachmentSpec]
) -> UserAS:
    """Make the AS's attachments those given: with a `link_id` kept or edited, without one added, missing ones removed.

    H of a host rises once when its view of a Link changes, L of an attachment point's host once when only a limit there
    does. Raises `FieldRuleError`, `UserAS.DoesNotExist`.
    """
    user_as, changes = _locked(user_as_id, {spec.attachment_point_id for spec in attachments})
    _check_fields(label, installation_type)
    raise_first(check_attachments(attachments, user_as=user_as))
    user_as.label, user_as.installation_type = label, installation_type
    user_as.save(update_fields=["label", "installation_type"])
    kept = _remove_others(user_as, attachments, actor, changes)
    host = _host_of(user_as)
    before = {link_id: view_of(link) for link_id, link in kept.items()}
    park_ports(host, attachments, kept)
    for index, spec in enumerate(attachments):
        link = kept.get(spec.link_id or 0)
        old = None if link is None else link.bandwidth_kbit
        link = link_add(user_as, host, spec, index=index) if link is None else link_edit(link, spec, index=index)
        audit.note_link(link, actor=actor, old=old, new=link.bandwidth_kbit)
        changes.note(link.pk, before.get(link.pk), view_of(link))
    changes.carry_out()
    logger.info("user_as.updated as=%s links=%s actor=%s", user_as.isd_as, len(attachments), actor and actor.pk)
    return user_as


@transaction.atomic
def user_as_set_active(*, user_as_id: int, actor: User | None, active: bool) -> None:
    """(De)activate all attachments of the AS; each host's H rises once. Raises `UserAS.DoesNotExist`."""
    user_as, changes = _locked(user_as_id, set())
    for link in _links(user_as):
        before = view_of(link)
        link.active = active
        link.save(update_fields=["active"])
        changes.note(link.pk, before, view_of(link))
    changes.carry_out()
    logger.info("user_as.active as=%s active=%s actor=%s", user_as.isd_as, active, actor and actor.pk)


@transaction.atomic
def user_as_delete(*, user_as_id: int, actor: User | None) -> None:
    """Delete the AS with its host and Links; H of the attachment points' hosts rises once.

    Raises `FieldRuleError` (`as_has_customers`) while other ASes attach at it, `UserAS.DoesNotExist`.
    """
    user_as, changes = _locked(user_as_id, set())
    customers = Link.objects.filter(interface_a__AS=user_as.pk).count()
    if customers:
        text = f"Other ASes are attached at {user_as.isd_as} ({customers}). They must leave before it can be deleted."
        raise FieldRuleError("as_has_customers", text, "label")
    _remove_others(user_as, [], actor, changes)
    changes.carry_out(without_hosts=frozenset(user_as.hosts.values_list("pk", flat=True)))
    name = user_as.isd_as
    user_as.delete()
    logger.info("user_as.deleted as=%s actor=%s", name, actor and actor.pk)


# --- steps ------------------------------------------------------------------------------------------------


def _check_fields(label: str, installation_type: str) -> None:
    maximum = UserAS._meta.get_field("label").max_length or 0
    if len(label) > maximum:
        text = f"A label of {len(label)} characters is longer than the {maximum} allowed. Shorten it."
        raise FieldRuleError("label_too_long", text, "label")
    if installation_type not in UserAS.Installation.values:
        known = ", ".join(UserAS.Installation.values)
        text = f'"{installation_type[:40]}" is no installation type. Choose one of: {known}.'
        raise FieldRuleError("installation_type_unknown", text, "installation_type")


def _lock_attachment_points(ids: set[int]) -> Changes:
    """Lock them, and settle defaults that are still on their way: a new Link must not be clamped to an old one.

    Returns what that changes, to be carried out with the rest of the save.
    """
    changes = Changes()
    allocation.lock_attachment_points(ids)
    for ap_id in sorted(ids):
        settle_default(ap_id, changes)
    return changes


def _locked(user_as_id: int, ap_ids: set[int]) -> tuple[UserAS, Changes]:
    """The AS, locked with the attachment points that it leaves or joins. Raises `UserAS.DoesNotExist`."""
    allocation.lock_as(user_as_id)
    user_as = UserAS.objects.select_related("isd", "owner").get(pk=user_as_id)
    present = {attachment_point_id(link) for link in provider_links(user_as)}
    own = AttachmentPoint.objects.filter(AS=user_as.pk).values_list("pk", flat=True)  # others may be attaching there
    return user_as, _lock_attachment_points({*ap_ids, *own, *(ap_id for ap_id in present if ap_id is not None)})


def _links(user_as: UserAS) -> list[Link]:
    """Its provider Links, locked, with all that the comparison of before and after looks at."""
    return read_links({link.pk for link in provider_links(user_as)})


def _host_of(user_as: UserAS) -> Host:
    host = user_as.hosts.order_by("pk").first()
    if host is None:
        host = Host.objects.create(AS=user_as, label=user_as.label)
    if not host.border_routers.exists():
        BorderRouter.objects.create(host=host, number=1)
    return host


def _remove_others(
    user_as: UserAS, attachments: Sequence[AttachmentSpec], actor: User | None, changes: Changes
) -> dict[int, Link]:
    """Remove the Links that are not among the attachments (any more), and return the others."""
    stays = {spec.link_id: spec.attachment_point_id for spec in attachments}
    kept: dict[int, Link] = {}
    for link in _links(user_as):
        if stays.get(link.pk) == attachment_point_id(link) and link.pk in stays:
            kept[link.pk] = link
            continue
        changes.note(link.pk, view_of(link), None)
        audit.note_link(link, actor=actor, old=link.bandwidth_kbit, new=None)
        link_remove(link)
    return kept
