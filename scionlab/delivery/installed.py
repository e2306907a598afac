"""Coexistence with another coordination service: full configuration, limits only, takeover.

The stock client deletes, without a backup, each file that its old manifest lists and the new one does not. A host that
shows files of another service, by a version that we never issued or by its manifest, gets a full configuration only
after a takeover (docs/adr/0032). Our agent installs no SCION files, so it is always served.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.db import transaction
from msgspec import Meta

import config_tar
from bandwidth_config import RuleError
from contract.scion_files import PATH_METADATA_PATH, systemd_units
from scionlab.accounts.models import User
from scionlab.delivery.files import added_files
from scionlab.platform.clock import database_now
from scionlab.testbed import audit, locks
from scionlab.testbed.models import AttachmentPoint, Host, InstalledFiles
from scionlab.testbed.models.host import are_scion_files_of_another
from scionlab.testbed.versions.counters import hosts_bump

logger = logging.getLogger(__name__)

Owner = InstalledFiles.Owner

# Files of SCIONLab's own service, assumed if the host has not sent its manifest.
USUAL_FILES = (
    "etc/scion/topology.json",
    "etc/scion/br-N.toml",
    "etc/scion/cs-1.toml",
    "etc/scion/sd.toml",
    "etc/scion/disp.toml",
    "etc/scion/certs/*",
    "etc/scion/crypto/*",
    "etc/scion/keys/*",
    "etc/openvpn/*",
)
_STORABLE = r"^[^\x00]*$"  # PostgreSQL cannot store NUL
FilePath = Annotated[str, Meta(max_length=300, pattern=_STORABLE)]
_DIGITS = 18  # int() of thousands of digits is slow and then fails


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A host's scionlab-config.json without its secret; `files` by path. All empty: the host has none."""

    host_id: Annotated[str, Meta(max_length=100, pattern=_STORABLE)] | None = None
    url: Annotated[str, Meta(max_length=200, pattern=_STORABLE)] | None = None
    version: Annotated[str, Meta(max_length=40, pattern=_STORABLE)] | int | float | None = None
    files: Annotated[dict[FilePath, Any], Meta(max_length=10_000)] | None = None
    systemd_units: Annotated[list[FilePath], Meta(max_length=1000)] | None = None

    @property
    def is_empty(self) -> bool:
        said = (self.host_id, self.url, self.files, self.systemd_units)
        return not any(said) and self.version in {None, ""}


@dataclass(frozen=True)
class Effect:
    """Effect of the stock client on installed files: paths from the root, and units that it would not restart."""

    deleted: list[str]
    replaced: list[str]
    stopped: list[str]


# --- what a client may have ------------------------------------------------------------------------------------------


def refusal(host: Host, *, generation: int, version: str) -> RuleError | None:
    """Return why a client other than our agent gets no tarball now; None if it gets one. `version` is that of its poll,
    G.H or empty. Stores what was seen, unless it is already known."""
    if host.limits_only:
        return _limits_only(host)
    known = InstalledFiles.objects.filter(host=host).first()
    if known is not None:
        return _other(host) if known.is_another_services else None
    if not version or _may_be_ours(host, generation, version):
        return None
    other_note(host_id=host.pk, version=version)
    return _other(host)


def _may_be_ours(host: Host, generation: int, version: str) -> bool:
    """False for a version that we never issued to this host. A host that confirmed one of our versions may send any:
    this database may be a restored backup. Versions of previous generations are not known any more
    (`enforcement.generation`)."""
    g, h = (int(one) if len(one) <= _DIGITS else 0 for one in version.split("."))
    is_given = g == generation and 1 <= h <= host.delivered_config_version
    return is_given or 1 <= g < generation or host.config_version_deployed > 0


def _limits_only(host: Host) -> RuleError:
    text = (
        f"Host {host} has limits only: another service manages its SCION files, and only scionlab-bw-agent can "
        "fetch from this service. Point scionlab-config at the other service."
    )
    return RuleError("limits_only", text)


def _other(host: Host) -> RuleError:
    text = (
        f"Host {host} has SCION files of another coordination service, most of which the stock client would "
        "delete. No configuration is sent until an administrator takes over the host; its page lists the files."
    )
    return RuleError("other_coordinator", text)


@transaction.atomic
def full_fetched(*, host_id: int) -> None:
    """Record that the stock client got the full configuration: from now on its files are ours. Raises
    `Host.DoesNotExist`."""
    _lock(host_id)
    known = InstalledFiles.objects.filter(host=host_id).first()
    now = database_now()
    if known is None:
        InstalledFiles.objects.create(host_id=host_id, owner=Owner.OURS, seen_at=now, fetched_at=now)
    elif known.owner != Owner.OURS or known.fetched_at is None:
        known.owner, known.fetched_at = Owner.OURS, now
        known.save(update_fields=["owner", "fetched_at"])


# --- what a host shows -----------------------------------------------------------------------------------------------


@transaction.atomic
def manifest_note(*, host_id: int, manifest: Manifest) -> RuleError | None:
    """Store what the host reports as installed. Return why it gets no full configuration, or None."""
    locks.lock_hosts([host_id])
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    is_ours = manifest.host_id == host.uid and (manifest.url or "").rstrip("/") == settings.SITE_URL.rstrip("/")
    known = InstalledFiles.objects.filter(host=host).first()
    if not manifest.is_empty and not is_ours:
        other_note(
            host_id=host_id,
            version="" if manifest.version is None else str(manifest.version),
            url=manifest.url or "",
            files=sorted(manifest.files or ()),
            units=sorted(manifest.systemd_units or ()),
        )
    elif known is None:
        InstalledFiles.objects.create(host=host, owner=Owner.OURS, seen_at=database_now())
    if host.limits_only:
        return _limits_only(host)
    return _other(host) if InstalledFiles.objects.get(host=host).is_another_services else None


@transaction.atomic
def other_note(
    *,
    host_id: int,
    version: str = "",
    url: str = "",
    files: Collection[str] | None = None,
    units: Collection[str] | None = None,
) -> None:
    """Record that the host has files of another service. Known details and a takeover are kept unless the host shows
    other files. Raises `Host.DoesNotExist`."""
    _lock(host_id)
    shown = {"version": version[:40], "url": url[:200], "files": files, "units": units}
    known = InstalledFiles.objects.filter(host=host_id).first()
    if known is None or known.owner != Owner.OTHER:
        known = InstalledFiles(host_id=host_id, pk=None if known is None else known.pk)
    elif all(value == getattr(known, name) for name, value in shown.items() if value):
        return
    for name, value in shown.items():
        if value:
            setattr(known, name, value)
    known.owner, known.seen_at = Owner.OTHER, database_now()
    known.taken_over_at = known.taken_over_by = known.fetched_at = None
    known.save()
    logger.warning("installed.other_coordinator host=%s version=%r url=%r", host_id, known.version, known.url)


def _lock(host_id: int) -> None:
    if host_id not in locks.lock_hosts([host_id]):
        raise Host.DoesNotExist


def full_configuration(host: Host) -> tuple[set[str], list[str]]:
    """Return the files and units that the host (with an AS) gets after a takeover, complete."""
    own = config_tar.snapshot(host)
    is_first = Host.objects.filter(AS=host.AS_id).order_by("pk").values_list("pk", flat=True).first() == host.pk
    further = set(added_files(host))
    ap = AttachmentPoint.objects.filter(AS=host.AS_id).first() if is_first else None
    if ap is not None and ap.has_path_metadata:
        further.add(PATH_METADATA_PATH)
    paths = config_tar.full_paths(own, runs_control_service=is_first, further=further)
    return paths, systemd_units(own, runs_control_service=is_first)


def effect_of(host: Host, known: InstalledFiles) -> Effect | None:
    """Return what a takeover would do to the host; None if it has not sent its manifest."""
    if known.files is None or host.AS is None:
        return None
    new, units = full_configuration(host)
    return Effect(
        deleted=[path for path in known.files if path not in new],
        replaced=[path for path in known.files if path in new],
        stopped=[unit for unit in known.units or [] if unit not in units],
    )


# --- what administrators decide --------------------------------------------------------------------------------------


@transaction.atomic
def host_set_limits_only(*, host_id: int, limits_only: bool, actor: User | None, reason: str = "") -> None:
    """Set whether another service manages the SCION files of the host. L of the host rises: our agent fetches. H does
    not, as SCION need not restart. A host that had limits only counts as managed by another service until a takeover.
    Idempotent. Raises `RuleError` (`limits_only`), `Host.DoesNotExist`."""
    if not limits_only and are_scion_files_of_another():
        text = "This service makes no keys: scion_config is not in SCIONLAB_EXTENSIONS. The host keeps limits only."
        raise RuleError("limits_only", text)
    locks.lock_hosts([host_id])
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    if host.limits_only == limits_only:
        return
    host.limits_only = limits_only
    host.save(update_fields=["limits_only"])
    if limits_only:
        other_note(host_id=host_id)
        InstalledFiles.objects.filter(host=host).update(taken_over_at=None, taken_over_by=None, fetched_at=None)
    hosts_bump(limits_ids=[host_id])
    detail = "Limits only: another service manages the SCION files" if limits_only else "No longer limits only"
    audit.note(host, kind="host_limits_only", actor=actor, detail=detail, reason=reason)
    logger.info("host.limits_only host=%s limits_only=%s actor=%s", host_id, limits_only, actor and actor.pk)


@transaction.atomic
def host_take_over(*, host_id: int, actor: User | None) -> None:
    """Give the stock client of the host its full configuration from now on, whatever files it deletes. Raises
    `RuleError` (`limits_only`, `nothing_to_take_over`), `Host.DoesNotExist`."""
    host, known = _locked(host_id)
    if host.limits_only:
        raise RuleError("limits_only", f"{host} has limits only. Switch it off first, then take over the host.")
    if known is None or known.owner != Owner.OTHER or known.taken_over_at is not None:
        text = (
            f"{host} has reported no files of another coordination service, or was already taken over. Reload its page."
        )
        raise RuleError("nothing_to_take_over", text)
    known.taken_over_at, known.taken_over_by = database_now(), actor
    known.save(update_fields=["taken_over_at", "taken_over_by"])
    shown = f" from {known.url or 'another coordination service'}" + (f" {known.version}" if known.version else "")
    audit.note(host, kind="host_take_over", actor=actor, detail=f"Taken over{shown}")
    logger.warning("host.taken_over host=%s actor=%s", host_id, actor and actor.pk)


@transaction.atomic
def host_take_over_undo(*, host_id: int, actor: User | None) -> None:
    """Undo a takeover. Raises `RuleError` (`take_over_fetched`: already fetched, or there was none),
    `Host.DoesNotExist`."""
    host, known = _locked(host_id)
    if known is None or known.owner != Owner.OTHER or known.taken_over_at is None:
        text = f"{host} has already fetched its configuration, or was not taken over. Reload its page."
        raise RuleError("take_over_fetched", text)
    known.taken_over_at = known.taken_over_by = None
    known.save(update_fields=["taken_over_at", "taken_over_by"])
    audit.note(
        host, kind="host_take_over", actor=actor, detail="Takeover undone before the host fetched its configuration"
    )
    logger.info("host.take_over_undone host=%s actor=%s", host_id, actor and actor.pk)


def _locked(host_id: int) -> tuple[Host, InstalledFiles | None]:
    locks.lock_hosts([host_id])
    host = Host.objects.select_related("AS__isd").get(pk=host_id)
    return host, InstalledFiles.objects.filter(host=host).first()
