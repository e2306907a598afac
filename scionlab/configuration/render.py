"""Hosts' configurations as bytes, rendered ahead of the poll and kept in the cache.

A configuration is a function of (uid, G, H, L, secret, signing keys, address of this service): whatever else it has
changes with H or L alone. The cache holds the newest one of each host, with a hash of these beside it: one that does
not fit any more is not found, and is replaced. It is encrypted there, for it has private keys.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, replace

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from redis.exceptions import RedisError

import config_tar
from bandwidth_config import RuleError
from config_tar import KeyRing
from scionlab.configuration.download import build_user_download
from scionlab.configuration.files import trust_files, vpn_files
from scionlab.models import Host, UserAS, selectors
from scionlab.platform.metrics.names import RENDERS
from scionlab.trust.secrets_box import opened, sealed
from scionlab.trust.signing import key_ring
from scionlab.versions.issued import digest_in, is_issued, issued_note

logger = logging.getLogger(__name__)

CACHE_TIMEOUT_S = 3600  # of hosts that are gone, or ask no more; a current one is rendered again when it fell out
_FORMAT = "10"  # raise it with any change of config_tar's output: a cached one must not outlive an upgrade


@dataclass(frozen=True)
class Rendered:
    """The tarball of one host at one version. `etag` is the quoted hash of the bytes.

    `identity` is a hash of everything that the bytes depend on. `limits_digest` is empty without link_info.json.
    """

    content: bytes
    etag: str
    file_name: str
    version: str
    config_version: int
    limits_version: int
    limits_digest: str
    identity: str


def config_for(host: Host) -> Rendered:
    """The host's configuration at its newest version, which may be newer than the versions of `host` as it was read.

    Raises `RuleError` (`host_without_as`, `border_router_twice`, `signing_key_unreadable`).
    """
    try:
        found = _cached(host, selectors.generation(), key_ring())
    except RedisError as exc:  # a cache that is down makes polls slower, not wrong
        logger.warning("render.cache_unreachable error=%r", exc)
        found = None
    if found is not None:
        RENDERS.labels("cached").inc()
        return found
    return _render(host.pk)


def render_ahead(host: Host) -> bool:
    """Have the configuration in the cache. False when it was there already, or the host has none."""
    if host.AS_id is None:
        return False
    try:
        if _cached(host, selectors.generation(), key_ring()) is not None:
            return False
    except RedisError:
        return False  # nowhere to put it
    _render(host.pk)
    return True


def user_download(user_as: UserAS) -> tuple[str, bytes]:
    """File name and bytes of what the owner of a user AS downloads. Raises `IndexError` for one without a host."""
    key_ring()  # makes the first key, if there is none, before the host is locked
    with transaction.atomic():
        host = _locked_host(Host.objects.filter(AS_id=user_as.pk).order_by("pk").values_list("pk", flat=True)[0])
        members = _issue(host, selectors.generation(), key_ring())
        in_virtual_machine = user_as.installation_type == UserAS.Installation.VM
        content = build_user_download(host, members, in_virtual_machine=in_virtual_machine)
    return config_tar.download_name(host), content


def _render(host_id: int) -> Rendered:
    """Read, build and cache.

    The host's row is locked meanwhile: whoever changes something that it depends on raises its counters in the same
    transaction, so the Links and keys that are read are those of the version that is read. Of several that want the
    same at the same time the first one renders, and the others find it in the cache when they get the lock. It is
    stored under the lock too: else an older one could replace a newer one there.
    """
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
            version=config_tar.format_version(generation, host.config_version),
            config_version=host.config_version,
            limits_version=host.limits_version,
            limits_digest=digest_in(members),
            identity=_identity(host, generation, keys),
        )
        _store(host, rendered)
    RENDERS.labels("rendered").inc()
    return rendered


def _issue(host: Host, generation: int, keys: KeyRing) -> dict[str, bytes]:
    """The files of the host, which is locked, with a note of the limits that it is given by them."""
    members = config_tar.host_members(
        host,
        generation=generation,
        site_url=settings.SITE_URL,
        keys=keys,
        as_hosts=_hosts_of_as(host),
        trust_files=trust_files(host),
        vpn_files=vpn_files(host),
    )
    digest = digest_in(members)
    if digest:
        issued_note(host=host, generation=generation, digest=digest)
    return members


def _locked_host(host_id: int) -> Host:
    """Without its attachment point: a join that waited for the lock may show what that was before."""
    return Host.objects.select_for_update(of=("self",), no_key=True).select_related("AS__isd").get(pk=host_id)


def _hosts_of_as(host: Host) -> list[Host]:
    return list(Host.objects.filter(AS_id=host.AS_id).order_by("pk"))


def _identity(host: Host, generation: int, keys: KeyRing) -> str:
    versions = (generation, host.config_version, host.limits_version)
    parts = (_FORMAT, host.uid, *versions, host.secret, keys.fingerprint, settings.SITE_URL)
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()


def _name(host: Host) -> str:
    """In the cache; two versions of this service side by side do not replace each other's."""
    return f"config:{_FORMAT}:{host.uid}"


def _cached(host: Host, generation: int, keys: KeyRing) -> Rendered | None:
    """Raises `RedisError`. A document that this database did not issue is from before a backup was restored."""
    found = cache.get(_name(host))
    if not isinstance(found, Rendered) or found.identity != _identity(host, generation, keys):
        return None
    version = (generation, host.config_version, host.limits_version)
    if found.limits_digest and not is_issued(host_id=host.pk, version=version, digest=found.limits_digest):
        return None
    try:
        return replace(found, content=opened(found.content.decode("ascii"), "A cached configuration"))
    except RuleError:  # SIGNING_SECRET was changed since: rendered again
        return None


def _store(host: Host, rendered: Rendered) -> None:
    try:
        sealed_content = sealed(rendered.content).encode("ascii")
        cache.set(_name(host), replace(rendered, content=sealed_content), CACHE_TIMEOUT_S)
    except RedisError as exc:
        logger.warning("render.cache_unreachable error=%r", exc)
