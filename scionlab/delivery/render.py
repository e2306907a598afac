"""Hosts' configurations as bytes, rendered ahead of the poll and cached.

A configuration is a function of (uid, G, H, L, content stamp, secret, signing keys, site URL): everything else in it
changes only with H or L, and each raise of them makes a new stamp. Numbers alone name two configurations after a
failover or a restore that lost the last saves. The cache holds the newest one of each host and a hash of these inputs;
an entry with another hash is ignored and replaced. Entries are encrypted because they contain private keys.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Random
from redis.exceptions import RedisError

import config_tar
from bandwidth_config import RuleError
from config_tar import KeyRing
from scionlab.delivery.download import build_user_download
from scionlab.delivery.files import added_files
from scionlab.delivery.issued import digest_in, is_issued, issued_note
from scionlab.delivery.models import IssuedLimits
from scionlab.delivery.signing import key_ring
from scionlab.platform.metrics.names import RENDERS
from scionlab.platform.secrets_box import opened, sealed
from scionlab.testbed import selectors
from scionlab.testbed.models import Host, UserAS

logger = logging.getLogger(__name__)

POLLING_WITHIN = timedelta(minutes=10)  # hosts that were away longer are not rendered ahead
CACHE_TIMEOUT_S = 3600  # only matters for deleted or silent hosts: a current entry that was evicted is rendered again
_FORMAT = "11"  # raise it with any change of config_tar's output: cached entries must not survive an upgrade


@dataclass(frozen=True)
class Rendered:
    """The tarball of one host at one version (G, H, L). `etag` is the quoted hash of the bytes. `identity` is a hash of
    all inputs. `limits_digest` is empty without link_info.json."""

    content: bytes
    etag: str
    file_name: str
    version: tuple[int, int, int]
    limits_digest: str
    identity: str


def config_for(host: Host) -> Rendered:
    """Return the host's newest configuration, which may be newer than `host`. Raises `RuleError` (`host_without_as`,
    `border_router_twice`, `signing_key_unreadable`)."""
    try:
        found = _cached(host, selectors.generation(), key_ring())
    except RedisError as exc:  # without the cache polls are slower, not wrong
        logger.warning("render.cache_unreachable error=%r", exc)
        found = None
    if found is not None:
        RENDERS.labels("cached").inc()
        return found
    return _render(host.pk)


def render_ahead(host: Host) -> bool:
    """Render into the cache. Return False if it was already there, or the host has no configuration."""
    if host.AS_id is None:
        return False
    try:
        if _cached(host, selectors.generation(), key_ring()) is not None:
            return False
    except RedisError:
        return False  # no cache to store it in
    _render(host.pk)
    return True


def hosts_to_render(*, now: datetime, limit: int) -> list[int]:
    """Hosts that polled recently, lack their newest configuration, and are not rendered yet; at most `limit`, those of
    attachment points first, others in random order so that a failing one does not block the rest. Two statements for
    any number of hosts. Evicted configurations, and those beyond the limit, are rendered by the poll."""
    lacks = Q(delivered_config_version__lt=F("config_version")) | Q(delivered_limits_version__lt=F("limits_version"))
    rendered = IssuedLimits.objects.filter(
        host=OuterRef("pk"),
        generation=selectors.generation(),
        config_version=OuterRef("config_version"),
        limits_version=OuterRef("limits_version"),
    )
    waiting = Host.objects.filter(lacks, ~Exists(rendered), AS__isnull=False, last_seen_at__gte=now - POLLING_WITHIN)
    first = F("attachment_point").asc(nulls_last=True)
    return list(waiting.order_by(first, Random()).values_list("pk", flat=True)[:limit])


def user_download(user_as: UserAS) -> tuple[str, bytes]:
    """Return file name and bytes of the download of a user AS. Raises `IndexError` if it has no host."""
    key_ring()  # creates the first key, if missing, before the host is locked
    with transaction.atomic():
        host = _locked_host(Host.objects.filter(AS_id=user_as.pk).order_by("pk").values_list("pk", flat=True)[0])
        members = _issue(host, selectors.generation(), key_ring())
        in_virtual_machine = user_as.installation_type == UserAS.Installation.VM
        content = build_user_download(host, members, in_virtual_machine=in_virtual_machine)
    return config_tar.download_name(host), content


def _render(host_id: int) -> Rendered:
    """Read, build and cache. The host's row is locked: every change raises the host's counters in its own transaction,
    so the Links and keys that are read belong to the version that is read. Of concurrent requests the first one
    renders, and the others find the result in the cache. It is stored under the lock, too, so that an older one cannot
    replace a newer one."""
    with transaction.atomic():
        host = _locked_host(host_id)
        generation = selectors.generation()
        keys = key_ring()
        try:
            found = _cached(host, generation, keys)
        except RedisError:
            found = None
        if found is not None:
            return found
        members = _issue(host, generation, keys)
        content = config_tar.pack(members)
        rendered = Rendered(
            content=content,
            etag=f'"{hashlib.sha256(content).hexdigest()}"',
            file_name=config_tar.host_tar_name(host),
            version=(generation, host.config_version, host.limits_version),
            limits_digest=digest_in(members),
            identity=_identity(host, generation, keys),
        )
        _store(host, rendered)
    RENDERS.labels("rendered").inc()
    return rendered


def _issue(host: Host, generation: int, keys: KeyRing) -> dict[str, bytes]:
    """The files of the locked host; records the issued limits."""
    members = config_tar.host_members(
        host,
        generation=generation,
        site_url=settings.SITE_URL,
        keys=keys,
        as_hosts=_hosts_of_as(host),
        added_files=added_files(host),
    )
    digest = digest_in(members)
    if digest:
        issued_note(host=host, generation=generation, digest=digest)
    return members


def _locked_host(host_id: int) -> Host:
    """Without its attachment point: a join that waited for the lock may return outdated columns."""
    return Host.objects.select_for_update(of=("self",), no_key=True).select_related("AS__isd").get(pk=host_id)


def _hosts_of_as(host: Host) -> list[Host]:
    return list(Host.objects.filter(AS_id=host.AS_id).order_by("pk"))


def _identity(host: Host, generation: int, keys: KeyRing) -> str:
    versions = (generation, host.config_version, host.limits_version, host.content_stamp)
    parts = (_FORMAT, host.uid, *versions, host.secret, keys.fingerprint, settings.SITE_URL)
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()


def _name(host: Host) -> str:
    """Cache key; contains the format, so that two versions of the service do not overwrite each other's entries."""
    return f"config:{_FORMAT}:{host.uid}"


def _cached(host: Host, generation: int, keys: KeyRing) -> Rendered | None:
    """Raises `RedisError`. A document that this database did not issue predates the restore of a backup."""
    found = cache.get(_name(host))
    if not isinstance(found, Rendered) or found.identity != _identity(host, generation, keys):
        return None
    if found.limits_digest and not is_issued(host_id=host.pk, version=found.version, digest=found.limits_digest):
        return None
    try:
        return replace(found, content=opened(found.content.decode("ascii"), "A cached configuration"))
    except RuleError:  # SIGNING_SECRET was changed since: render again
        return None


def _store(host: Host, rendered: Rendered) -> None:
    try:
        sealed_content = sealed(rendered.content).encode("ascii")
        cache.set(_name(host), replace(rendered, content=sealed_content), CACHE_TIMEOUT_S)
    except RedisError as exc:
        logger.warning("render.cache_unreachable error=%r", exc)
