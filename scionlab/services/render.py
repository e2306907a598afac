"""Hosts' configurations as bytes, rendered ahead of the poll and kept in the cache.

A configuration is a function of (uid, G, H, L, secret, signing keys, address of this service): these name it in the
cache, so there is nothing to invalidate.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

from django.conf import settings
from django.core.cache import cache
from django.db import transaction
from redis.exceptions import RedisError

import config_tar
from config_tar import KeyRing
from scionlab import selectors
from scionlab.metrics.names import RENDERS
from scionlab.models import Host, UserAS
from scionlab.services.signing import key_ring
from scionlab.services.user_download import build_user_download

logger = logging.getLogger(__name__)

CACHE_TIMEOUT_S = 3600  # superseded ones fall out by themselves; a current one is rendered again when it did
_FORMAT = "4"  # raise it with any change of config_tar's output: a cached one must not outlive an upgrade


@dataclass(frozen=True)
class Rendered:
    """The tarball of one host at one version. `etag` is the quoted hash of the bytes."""

    content: bytes
    etag: str
    file_name: str
    version: str
    config_version: int
    limits_version: int


def config_for(host: Host) -> Rendered:
    """The host's configuration at its newest version, which may be newer than the versions of `host` as it was read.

    Raises `RuleError` (`host_without_as`, `border_router_twice`, `signing_key_unreadable`).
    """
    found = _cached(_key(host, selectors.generation(), key_ring()))
    if found is not None:
        RENDERS.add("cached")
        return found
    return _render(host.pk)


def render_ahead(host: Host) -> bool:
    """Have the configuration in the cache. False when it was there already, or the host has none."""
    if host.AS_id is None or _is_cached(_key(host, selectors.generation(), key_ring())):
        return False
    _render(host.pk)
    return True


def user_download(user_as: UserAS) -> tuple[str, bytes]:
    """File name and bytes of what the owner of a user AS downloads. Raises `IndexError` for one without a host."""
    key_ring()  # makes the first key, if there is none, before the host is locked
    with transaction.atomic():
        host = _locked_host(Host.objects.filter(AS_id=user_as.pk).order_by("pk").values_list("pk", flat=True)[0])
        content = build_user_download(
            host,
            generation=selectors.generation(),
            site_url=settings.SITE_URL,
            keys=key_ring(),
            as_hosts=_hosts_of_as(host),
            in_virtual_machine=user_as.installation_type == UserAS.Installation.VM,
        )
    return config_tar.download_name(host), content


def _render(host_id: int) -> Rendered:
    """Read, build and cache.

    The host's row is locked meanwhile: whoever changes something that it depends on raises its counters in the same
    transaction, so the Links and keys that are read are those of the version that is read. Of several that want the
    same at the same time the first one renders, and the others find it in the cache when they get the lock.
    """
    with transaction.atomic():
        host = _locked_host(host_id)
        generation = selectors.generation()
        keys = key_ring()
        key = _key(host, generation, keys)
        found = _cached(key)
        if found is not None:
            return found
        content = config_tar.build_host_tar(
            host, generation=generation, site_url=settings.SITE_URL, keys=keys, as_hosts=_hosts_of_as(host)
        )
    RENDERS.add("rendered")
    rendered = Rendered(
        content=content,
        etag=f'"{hashlib.sha256(content).hexdigest()}"',
        file_name=config_tar.host_tar_name(host),
        version=config_tar.format_version(generation, host.config_version),
        config_version=host.config_version,
        limits_version=host.limits_version,
    )
    _store(key, rendered)
    return rendered


def _locked_host(host_id: int) -> Host:
    hosts = Host.objects.select_for_update(of=("self",), no_key=True).select_related("AS__isd", "attachment_point")
    return hosts.get(pk=host_id)


def _hosts_of_as(host: Host) -> list[Host]:
    return list(Host.objects.filter(AS_id=host.AS_id).order_by("pk"))


def _key(host: Host, generation: int, keys: KeyRing) -> str:
    versions = (generation, host.config_version, host.limits_version)
    parts = (_FORMAT, host.uid, *versions, host.secret, keys.fingerprint, settings.SITE_URL)
    return "config:" + hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()


def _cached(key: str) -> Rendered | None:
    """A cache that is down makes polls slower, not wrong."""
    try:
        found = cache.get(key)
    except RedisError as exc:
        logger.warning("render.cache_unreachable error=%r", exc)
        return None
    return found if isinstance(found, Rendered) else None


def _is_cached(key: str) -> bool:
    try:
        return cache.has_key(key)
    except RedisError:
        return True  # nowhere to put it


def _store(key: str, rendered: Rendered) -> None:
    try:
        cache.set(key, rendered, CACHE_TIMEOUT_S)
    except RedisError as exc:
        logger.warning("render.cache_unreachable error=%r", exc)
