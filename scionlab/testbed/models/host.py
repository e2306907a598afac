"""Hosts: machines that run an AS's services and pull their configuration."""

from __future__ import annotations

import hmac
import secrets
import uuid
from datetime import datetime

from django.conf import settings
from django.db import models

from scionlab.testbed.models.link_ends import LocalLinkEnd, local_link_ends, with_held_ends


def new_uid() -> str:
    return uuid.uuid4().hex


def new_secret() -> str:
    """128 random bits in hexadecimal."""
    return secrets.token_hex(16)


def secret_fits(given: bytes, *, secret: str, previous: str, previous_until: datetime | None, now: datetime) -> bool:
    """True for the secret, and during its grace period for the previous one. Takes constant time. An empty secret never
    matches: it means none."""
    in_grace = previous_until is not None and now < previous_until
    fits = hmac.compare_digest(given, secret.encode()) and bool(secret)
    fits_previous = hmac.compare_digest(given, previous.encode()) and bool(previous) and in_grace
    return fits or fits_previous


def trace_of(uid: str, config_version: int, limits_version: int) -> str:
    """Identifier of one configuration version of a host in all logs, including agent and limiter, from the save to the
    receipt (docs/operations.md, One change through all logs)."""
    return f"{uid[:8]}.{config_version}.{limits_version}"


def are_scion_files_of_another() -> bool:
    """Without `scion_config` this service has no keys for a host, and files without keys would stop its SCION."""
    return "scion_config" not in settings.SCIONLAB_EXTENSIONS


class Host(models.Model):
    """A machine of an AS, with the two counters that tell it when to fetch (DOMAIN section 2). `config_version` (H)
    rises when its SCION configuration changes: stock clients then restart SCION. `limits_version` (L) rises when only
    limits change: only our agent reads it."""

    class ScionPackages(models.TextChoices):
        SCIONLAB = "scionlab", "SCIONLab's packages"
        UPSTREAM = "upstream", "Upstream packages (scionproto)"

    AS = models.ForeignKey(
        "testbed.AS", on_delete=models.CASCADE, related_name="hosts", verbose_name="AS", null=True, blank=True
    )
    label = models.CharField(max_length=100, blank=True)
    uid = models.CharField("host id", max_length=32, unique=True, default=new_uid, editable=False)
    secret = models.CharField("host secret", max_length=64, default=new_secret)
    # The previous secret is accepted until then, so that the host can fetch the new one.
    previous_secret = models.CharField(max_length=64, blank=True, default="", editable=False)
    previous_secret_until = models.DateTimeField(null=True, blank=True, editable=False)
    # L of the first configuration that carries `secret`.
    secret_limits_version = models.PositiveIntegerField(default=0, db_default=0, editable=False)
    internal_ip = models.GenericIPAddressField("internal IP", default="127.0.0.1")
    public_ipv4 = models.GenericIPAddressField("public IPv4", protocol="IPv4", null=True, blank=True)
    public_ipv6 = models.GenericIPAddressField("public IPv6", protocol="IPv6", null=True, blank=True)
    bind_ip = models.GenericIPAddressField(
        "bind IP", null=True, blank=True, help_text="Local address if the host is behind NAT."
    )

    reports_from_elsewhere = models.BooleanField(
        "reports from another address",
        default=False,
        db_default=False,
        help_text="The host is behind NAT or a proxy: its agent's requests come from an address that is not above.",
    )
    limits_only = models.BooleanField(
        "limits only",
        default=are_scion_files_of_another,
        db_default=False,
        help_text="Another service manages the SCION files: the tarball contains only link_info.json.",
    )
    scion_packages = models.CharField(
        "SCION packages",
        max_length=8,
        choices=ScionPackages,
        default=ScionPackages.SCIONLAB,
        db_default=ScionPackages.SCIONLAB.value,
        help_text="The installed packages: names of units and files differ between them.",
    )
    config_version = models.PositiveIntegerField("config version (H)", default=1)
    limits_version = models.PositiveIntegerField("limits version (L)", default=1)
    # Random at every raise of H or L: these numbers repeat after a database lost its last saves, this one does not.
    content_stamp = models.BigIntegerField(default=0, db_default=0, editable=False)
    config_version_deployed = models.PositiveIntegerField(
        "deployed version", default=0, help_text="Reported by the client that installs SCION files on the host."
    )
    delivered_config_version = models.PositiveIntegerField(
        "delivered H", default=0, help_text="Newest configuration sent to the host, to any client."
    )
    delivered_limits_version = models.PositiveIntegerField("delivered L", default=0)
    delivered_at = models.DateTimeField(null=True, blank=True)
    last_seen_at = models.DateTimeField("last seen", null=True, blank=True)
    # A version that the host proved by a text that we signed, although this database does not know it: a backup was
    # restored (delivery.evidence). Valid until the generation is above it.
    ahead_generation = models.PositiveIntegerField(null=True, blank=True, editable=False)
    ahead_config_version = models.PositiveIntegerField(null=True, blank=True, editable=False)
    ahead_limits_version = models.PositiveIntegerField(null=True, blank=True, editable=False)
    ahead_at = models.DateTimeField(null=True, blank=True, editable=False)
    # While changes wait here (`testbed.versions.restarts`): when H rises for them at the latest.
    restart_due_at = models.DateTimeField(null=True, blank=True, editable=False, db_index=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.label or (f"host of {self.AS.isd_as}" if self.AS else f"host {self.uid}")

    @property
    def trace(self) -> str:
        return trace_of(self.uid, self.config_version, self.limits_version)

    @property
    def public_ips(self) -> list[str]:
        return [ip for ip in (self.public_ipv4, self.public_ipv6) if ip]

    @property
    def link_ends(self) -> list[LocalLinkEnd]:
        """The active Links that end here, as input of `bandwidth_config.generate_link_info`; those of which a change
        waits as the host has them."""
        ends = local_link_ends(self.pk, self.interfaces.all())
        return ends if self.restart_due_at is None else with_held_ends(self.pk, ends)


class BorderRouter(models.Model):
    """A SCION border router on a host. Its internal port is 30000 + its number (DOMAIN section 4). One with a `vpn` has
    exactly the Links over that VPN: it exits at start while the tun device is missing."""

    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="border_routers")
    number = models.PositiveSmallIntegerField(default=1)
    vpn = models.ForeignKey(
        "testbed.VPN",
        null=True,
        blank=True,
        editable=False,
        on_delete=models.CASCADE,
        related_name="border_routers",
        verbose_name="VPN",
    )

    class Meta:
        ordering = ["host", "number"]
        constraints = [
            models.UniqueConstraint(fields=["host", "number"], name="border_router_number_once_per_host"),
            models.UniqueConstraint(fields=["host", "vpn"], name="border_router_once_per_host_and_vpn"),
        ]

    def __str__(self) -> str:
        return f"{self.name} on {self.host}"

    @property
    def name(self) -> str:
        return f"br-{self.number}"

    @property
    def internal_port(self) -> int:
        return 30_000 + self.number
