"""User ASes: create, edit, (de)activate and delete, with their attachments."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterable, Sequence

from django.db import transaction

from bandwidth_config import RuleError
from scionlab.accounts.locks import lock_user
from scionlab.accounts.models import User
from scionlab.limits.defaults import apply_default
from scionlab.limits.update import links_set_bandwidth, store_setting
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.queue import RENDER_HOST, queue_after_commit
from scionlab.testbed import audit, locks
from scionlab.testbed.deleted_host import hosts_bury
from scionlab.testbed.host import checked_packages
from scionlab.testbed.last_changes import last_change_of_user_as, note_change
from scionlab.testbed.life import DEACTIVATED, LIVES, links_end
from scionlab.testbed.models import AttachmentPoint, Host, Link, UserAS, numbers
from scionlab.testbed.models.link_settings import LINK_SETTINGS
from scionlab.testbed.versions.changes import Changes, read_links, view_of
from scionlab.user_ases.attachment_rules import check_attachments, raise_first
from scionlab.user_ases.attachments import (
    AttachmentSpec,
    attachment_point_id,
    provider_links,
    public_addresses,
    spec_of,
)
from scionlab.user_ases.wiring import drop_unused_vpn_clients, link_add, link_remove, links_edit
from scionlab.web.pages.stale_pages import Value, Values, refuse_stale

logger = logging.getLogger(__name__)


def check_quota(owner: User) -> None:
    """Raises `FieldRuleError` (`quota_exceeded`) if the owner has used the quota."""
    count = UserAS.objects.filter(owner=owner).count()
    if count >= owner.as_quota:
        has = "1 AS" if count == 1 else f"{count} ASes"
        raise FieldRuleError(
            "quota_exceeded",
            f"{owner.email} has {has}; the quota is {owner.as_quota}. Delete an unused AS, or ask the "
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
    scion_packages: str | None = None,
    as_id: int | None = None,
) -> UserAS:
    """Create a user AS with its host, border routers and keys, and one provider Link per attachment. `scion_packages`
    None: SCIONLab's. `as_id` None: the smallest free number; a given one (for seeds and labs) must be free. H rises
    once for the host of each attachment point. Raises `FieldRuleError` (quota, the rules of attachments, an attachment
    point or VPN that is full, an id that is not for user ASes or taken) or `RuleError` (`keys_unavailable`)."""
    locks.lock_as_ids()
    check_quota(lock_user(owner.pk))
    changes = _lock_attachment_points({spec.attachment_point_id for spec in attachments}, of_links=())
    locks.lock_addresses(public_addresses(attachments))
    _check_fields(label, installation_type, scion_packages)
    raise_first(check_attachments(attachments, user_as=None, installation_type=installation_type, reader=actor))
    user_as = UserAS.objects.create(
        isd=AttachmentPoint.objects.get(pk=attachments[0].attachment_point_id).AS.isd,
        as_id=numbers.free_user_as_id() if as_id is None else numbers.checked_user_as_id(as_id),
        label=label,
        owner=owner,
        installation_type=installation_type,
    )
    packages = Host.ScionPackages.SCIONLAB if scion_packages is None else scion_packages
    host = Host.objects.create(AS=user_as, label=user_as.label, scion_packages=packages)
    _equip(user_as, actor)
    _add(user_as, host, list(enumerate(attachments)), actor=actor, changes=changes)
    changes.carry_out(actor=actor, without_hosts=frozenset({host.pk}))  # a new host has fetched nothing
    queue_after_commit(RENDER_HOST, host.pk)
    logger.info("user_as.created as=%s links=%s actor=%s", user_as.isd_as, len(attachments), actor and actor.pk)
    return user_as


@transaction.atomic
def user_as_update(
    *,
    user_as_id: int,
    actor: User | None,
    label: str,
    installation_type: str,
    attachments: Sequence[AttachmentSpec],
    scion_packages: str | None = None,
    shown: Values | None = None,
) -> UserAS:
    """Replace the AS's attachments: those with a `link_id` are kept or edited, others added, missing ones removed. H of
    a host rises once if its view of a Link changes, or its own `scion_packages` (None keeps them); L of an attachment
    point's host rises once if only a limit there changes. `shown`: `values_of_user_as` when the page was rendered.
    Raises `FieldRuleError`, `StalePageError`, `UserAS.DoesNotExist`."""
    user_as, changes = _locked(user_as_id, {spec.attachment_point_id for spec in attachments})
    packages = _packages_of(user_as) if scion_packages is None else scion_packages
    stored, wanted = values_of_user_as(user_as), _values(label, installation_type, packages, attachments)
    refuse_stale(shown=shown, stored=stored, wanted=wanted, last=lambda: last_change_of_user_as(user_as.pk))
    locks.lock_addresses(public_addresses(attachments))
    _check_fields(label, installation_type, packages)
    raise_first(check_attachments(attachments, user_as=user_as, installation_type=installation_type, reader=actor))
    was_installation_type = user_as.installation_type
    user_as.label, user_as.installation_type = label, installation_type
    user_as.save(update_fields=["label", "installation_type"])
    kept = _remove_others(user_as, attachments, actor, changes)
    host = _host_of(user_as)
    edits = [(index, spec, kept[spec.link_id]) for index, spec in enumerate(attachments) if spec.link_id in kept]
    were = [(link.requested, link.active, view_of(link)) for _, _, link in edits]
    links_edit(edits, installation_type=installation_type, was_installation_type=was_installation_type)
    for (_, _, link), (old, was_active, before) in zip(edits, were, strict=True):
        audit.note_link(link, actor=actor, old=old, new=link.requested)
        if was_active != link.active:
            audit.note_setting(link, LINK_SETTINGS["active"], actor=actor)
        if was_active and not link.active:
            links_end([link], actor=actor, why=DEACTIVATED)
        changes.note(link.pk, before, view_of(link))
    new = [(index, spec) for index, spec in enumerate(attachments) if spec.link_id not in kept]
    _add(user_as, host, new, actor=actor, changes=changes)
    drop_unused_vpn_clients(host)
    if wanted != stored:
        note_change(user_as.pk, actor=actor)
    _carry_out(changes, host, packages, actor)
    logger.info("user_as.updated as=%s links=%s actor=%s", user_as.isd_as, len(attachments), actor and actor.pk)
    return user_as


@transaction.atomic
def user_as_change(
    *,
    user_as_id: int,
    actor: User | None,
    label: str | None = None,
    active: bool | None = None,
    scion_packages: str | None = None,
    bandwidth_kbit: int | None = None,
    reason: str = "",
) -> None:
    """Change the AS; None keeps a value. `active` and `bandwidth_kbit` apply to all attachments. H rises once for each
    host that gains or loses a Link, and for the AS's own if its packages change. The label is in no configuration.
    Raises `FieldRuleError` (`label_too_long`, `scion_packages_unknown`, those of `links_set_bandwidth`),
    `UserAS.DoesNotExist`."""
    user_as, changes = _locked(user_as_id, set())
    stored = (user_as.label, _packages_of(user_as))
    wanted = (stored[0] if label is None else label, stored[1] if scion_packages is None else scion_packages)
    _check_fields(wanted[0], user_as.installation_type, wanted[1])
    if wanted[0] != stored[0]:
        user_as.label = wanted[0]
        user_as.save(update_fields=["label"])
    if bandwidth_kbit is not None:
        links_set_bandwidth(_links(user_as), bandwidth_kbit, actor=actor, changes=changes)
    if active is not None:
        _set_active(_links(user_as), active, actor, changes, reason)
    if wanted != stored or active is not None or bandwidth_kbit is not None:
        note_change(user_as.pk, actor=actor)
    _carry_out(changes, _host_of(user_as), wanted[1], actor)
    logger.info(
        "user_as.changed as=%s active=%s packages=%s actor=%s", user_as.isd_as, active, wanted[1], actor and actor.pk
    )


def _set_active(links: Iterable[Link], active: bool, actor: User | None, changes: Changes, reason: str) -> None:
    for link in links:
        before = view_of(link)
        store_setting(link, LINK_SETTINGS["active"], active, actor=actor, reason=reason)
        changes.note(link.pk, before, view_of(link))


def _carry_out(changes: Changes, host: Host, scion_packages: str, actor: User | None) -> None:
    """Locks the AS's own host with the others, for its packages."""
    is_changed = scion_packages != host.scion_packages
    if is_changed:
        changes.note_topologies([host.pk])
    changes.carry_out(actor=actor)
    if is_changed:
        Host.objects.filter(pk=host.pk).update(scion_packages=scion_packages)


@transaction.atomic
def user_as_delete(*, user_as_id: int, actor: User | None, reason: str = "") -> None:
    """Delete the AS with its host and Links; H of the attachment points' hosts rises once. Raises `FieldRuleError`
    (`as_has_customers`) while other ASes are attached to it, `UserAS.DoesNotExist`."""
    user_as, changes = _locked(user_as_id, set())
    customers = Link.objects.filter(interface_a__AS=user_as.pk).count()
    if customers:
        text = (
            f"Other ASes are attached to {user_as.isd_as} ({customers}). They must be detached before it can "
            "be deleted."
        )
        raise FieldRuleError("as_has_customers", text, "label")
    _remove_others(user_as, [], actor, changes, reason)
    changes.carry_out(actor=actor, without_hosts=frozenset(user_as.hosts.values_list("pk", flat=True)))
    name = user_as.isd_as
    hosts_bury(user_as.pk)
    user_as.delete()
    logger.info("user_as.deleted as=%s actor=%s", name, actor and actor.pk)


# --- stored values ------------------------------------------------------------------------------------------------


def values_of_user_as(user_as: UserAS, links: Iterable[Link] | None = None) -> dict[str, Value]:
    """Everything that can be edited on the AS's page, for `web.pages.stale_pages`. A page passes the `links` that it
    shows: reading them again might return newer values."""
    kind = user_as.installation_type
    specs = [spec_of(link, kind) for link in (provider_links(user_as) if links is None else links)]
    return _values(user_as.label, kind, _packages_of(user_as), specs)


def check_shown(user_as: UserAS, *, shown: Values | None) -> None:
    """Raise `StalePageError` for a page that is not saved for another reason, if it is also outdated. Takes no lock."""
    stored = values_of_user_as(UserAS.objects.get(pk=user_as.pk))
    refuse_stale(shown=shown, stored=stored, wanted={}, last=lambda: last_change_of_user_as(user_as.pk))


def _values(
    label: str, installation_type: str, scion_packages: str, specs: Sequence[AttachmentSpec]
) -> dict[str, Value]:
    """A new attachment is named `new.<position>`, which no stored one is."""
    values: dict[str, Value] = {
        "label": label,
        "installation_type": installation_type,
        "scion_packages": scion_packages,
    }
    for index, spec in enumerate(specs):
        key = f"new.{index}" if spec.link_id is None else str(spec.link_id)
        values |= {f"{key}.{name}": value for name, value in _fields_that_count(spec).items()}
    return values


def _fields_that_count(spec: AttachmentSpec) -> dict[str, Value]:
    """Over the VPN the address is allocated, so its fields are ignored."""
    values = dataclasses.asdict(spec)
    del values["link_id"]
    if spec.from_user_kbit == spec.bandwidth_kbit:
        values["from_user_kbit"] = None  # normalized
    if spec.use_vpn:
        values |= {"public_ip": None, "bind_ip": None, "bind_port": None}
    return values


# --- steps ------------------------------------------------------------------------------------------------


def _check_fields(label: str, installation_type: str, scion_packages: str | None) -> None:
    maximum = UserAS._meta.get_field("label").max_length or 0
    if len(label) > maximum:
        text = f"A label of {len(label)} characters is longer than the {maximum} allowed. Shorten it."
        raise FieldRuleError("label_too_long", text, "label")
    if scion_packages is not None:
        checked_packages(scion_packages)
    if installation_type not in UserAS.Installation.values:
        known = ", ".join(UserAS.Installation.values)
        text = f'"{installation_type[:40]}" is not an installation type. Choose one of: {known}.'
        raise FieldRuleError("installation_type_unknown", text, "installation_type")


def _lock_attachment_points(ids: set[int], *, of_links: Collection[int]) -> Changes:
    """Lock them and apply pending defaults, and the exceptions of these Links: nothing must be clamped to an outdated
    maximum. Returns the resulting changes, to be carried out with the save."""
    changes = Changes()
    locks.lock_attachment_points(ids)
    for ap_id in sorted(ids):
        apply_default(ap_id, changes, of_links=of_links)
    return changes


def _locked(user_as_id: int, ap_ids: set[int]) -> tuple[UserAS, Changes]:
    """The locked AS, with the attachment points that it leaves or joins. Raises `UserAS.DoesNotExist`."""
    locks.lock_as(user_as_id)
    user_as = UserAS.objects.select_related("isd", "owner").get(pk=user_as_id)
    links = provider_links(user_as)
    present = {attachment_point_id(link) for link in links}
    own = AttachmentPoint.objects.filter(AS=user_as.pk).values_list("pk", flat=True)  # others may be attaching there
    ids = {*ap_ids, *own, *(ap_id for ap_id in present if ap_id is not None)}
    return user_as, _lock_attachment_points(ids, of_links=[link.pk for link in links])


def _links(user_as: UserAS) -> list[Link]:
    """Its locked provider Links, with everything that is compared before and after."""
    return read_links({link.pk for link in provider_links(user_as)})


def _host_of(user_as: UserAS) -> Host:
    host = user_as.hosts.order_by("pk").first()
    return Host.objects.create(AS=user_as, label=user_as.label) if host is None else host


def _packages_of(user_as: UserAS) -> str:
    """For an AS without a host (imported): those of its new host."""
    packages = user_as.hosts.order_by("pk").values_list("scion_packages", flat=True).first()
    return packages or Host.ScionPackages.SCIONLAB.value


def _equip(user_as: UserAS, actor: User | None) -> None:
    """Raises `RuleError` (`keys_unavailable`): only administrators can resolve the cause."""
    try:
        for life in LIVES:
            life.as_made(user_as, actor=actor)
    except RuleError as exc:
        logger.error("user_as.not_equipped as=%s code=%s %s", user_as.isd_as, exc.code, exc.message)
        text = "The keys of the testbed cannot be used: an administrator has to resolve a problem. Nothing was saved."
        raise RuleError("keys_unavailable", text) from exc


def _add(
    user_as: UserAS, host: Host, new: Sequence[tuple[int, AttachmentSpec]], *, actor: User | None, changes: Changes
) -> None:
    for index, spec in new:
        link = link_add(user_as, host, spec, index=index)
        audit.note_link(link, actor=actor, old=None, new=link.requested)
        changes.note(link.pk, None, view_of(link))


def _remove_others(
    user_as: UserAS, attachments: Sequence[AttachmentSpec], actor: User | None, changes: Changes, reason: str = ""
) -> dict[int, Link]:
    """Remove the Links that are no longer among the attachments; return the others."""
    stays = {spec.link_id: spec.attachment_point_id for spec in attachments}
    kept: dict[int, Link] = {}
    for link in _links(user_as):
        if stays.get(link.pk) == attachment_point_id(link) and link.pk in stays:
            kept[link.pk] = link
            continue
        changes.note(link.pk, view_of(link), None)
        links_end([link], actor=actor, why="the link was removed")
        audit.note_link(link, actor=actor, old=link.requested, new=None, reason=reason)
        link_remove(link)
    return kept
