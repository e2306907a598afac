"""Interfaces and the Links between them."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

from django.db import models

from bandwidth_config import MAX_BANDWIDTH_KBIT, Limits, limits_at
from contract.link_rules import MAX_INTERFACE_ID, MAX_PORT, MIN_INTERFACE_ID, MIN_PORT, with_exception
from contract.scion_files import MTU_BYTES
from scionlab.platform.clock import database_now
from scionlab.testbed.models.attachment_point import AttachmentPoint
from scionlab.testbed.models.host import BorderRouter, Host
from scionlab.testbed.models.isd_as import AS, UserAS
from scionlab.testbed.models.link_ends import LinkType
from scionlab.testbed.models.timed_limit import TimedLimit
from scionlab.testbed.models.vpn import VPNClient


class Interface(models.Model):
    """One end of a Link: a UDP socket of a border router, `public_ip:public_port` as seen by the other end."""

    AS = models.ForeignKey("testbed.AS", on_delete=models.CASCADE, related_name="interfaces", verbose_name="AS")
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="interfaces")
    border_router = models.ForeignKey(BorderRouter, on_delete=models.CASCADE, related_name="interfaces")
    interface_id = models.PositiveSmallIntegerField()
    public_ip = models.GenericIPAddressField("public IP")
    public_port = models.PositiveIntegerField("public port (UDP)")
    bind_ip = models.GenericIPAddressField("bind IP", null=True, blank=True)
    bind_port = models.PositiveIntegerField(null=True, blank=True)
    vpn_client = models.ForeignKey(
        VPNClient,
        null=True,
        blank=True,
        on_delete=models.RESTRICT,
        related_name="interfaces",
        help_text="Set for the user AS's end of a Link over the VPN; public_ip is then the address of the client "
        "in the VPN.",
    )

    class Meta:
        ordering = ["AS", "interface_id"]
        constraints = [
            models.UniqueConstraint(fields=["AS", "interface_id"], name="interface_id_once_per_as"),
            models.UniqueConstraint(
                fields=["host", "public_ip", "public_port"], name="underlay_port_once_per_host_and_ip"
            ),
            models.CheckConstraint(
                condition=models.Q(interface_id__gte=MIN_INTERFACE_ID, interface_id__lte=MAX_INTERFACE_ID),
                name="interface_id_in_bounds",
            ),
            models.CheckConstraint(
                condition=models.Q(public_port__gte=MIN_PORT, public_port__lte=MAX_PORT), name="public_port_in_bounds"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.AS.isd_as}#{self.interface_id}"

    @property
    def local_ip(self) -> str:
        """Address of this end on its own host."""
        return self.bind_ip or self.public_ip

    @property
    def local_port(self) -> int:
        return self.bind_port or self.public_port


class Link(models.Model):
    """A SCION link between two interfaces. For a provider Link, A is the provider's end (the attachment point's)."""

    Type: TypeAlias = LinkType

    interface_a = models.OneToOneField(Interface, on_delete=models.CASCADE, related_name="link_as_a")
    interface_b = models.OneToOneField(Interface, on_delete=models.CASCADE, related_name="link_as_b")
    type = models.CharField(max_length=16, choices=Type, default=Type.PROVIDER)
    active = models.BooleanField(default=True)
    bandwidth_kbit = models.PositiveBigIntegerField(
        "bandwidth requested to the user AS [kbit/s]", help_text="0 blocks this direction."
    )
    from_user_kbit = models.PositiveBigIntegerField(
        "bandwidth requested from the user AS [kbit/s]",
        null=True,
        blank=True,
        help_text="Empty: the same as to the user AS.",
    )
    observe_only = models.BooleanField(
        "observe only",
        default=False,
        db_default=False,
        help_text="The Link is measured but not limited.",
    )
    # The highest exception in force (`MaximumException`), as applied by `limits.defaults.apply_default`.
    exception_kbit = models.PositiveBigIntegerField(
        "maximum by an exception [kbit/s]", null=True, blank=True, editable=False
    )
    mtu = models.PositiveIntegerField("MTU [byte]", default=MTU_BYTES)
    # First versions of the provider's host whose configuration has the current state of this Link.
    wanted_config_version = models.PositiveIntegerField(default=0, editable=False)
    wanted_limits_version = models.PositiveIntegerField(default=0, editable=False)
    changed_at = models.DateTimeField("last changed", default=database_now, editable=False)
    # It was imported: its owner gets no mail when it is enforced.
    is_told = models.BooleanField(default=False, db_default=False, editable=False)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(bandwidth_kbit__gte=0, bandwidth_kbit__lte=MAX_BANDWIDTH_KBIT),
                name="link_bandwidth_in_bounds",
            ),
            models.CheckConstraint(
                condition=models.Q(from_user_kbit=None)
                | models.Q(from_user_kbit__gte=0, from_user_kbit__lte=MAX_BANDWIDTH_KBIT),
                name="link_from_user_in_bounds",
            ),
            models.CheckConstraint(
                condition=~models.Q(interface_a=models.F("interface_b")), name="link_has_two_different_ends"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.interface_a} \N{RIGHTWARDS ARROW} {self.interface_b}"

    @property
    def attachment_point(self) -> AttachmentPoint | None:
        """The AP that limits this Link, or None."""
        if self.type != Link.Type.PROVIDER or not is_user_as(self.interface_b.AS):
            return None
        return getattr(self.interface_a.AS, "attachment_point", None)

    @property
    def is_limited(self) -> bool:
        """True for a user AS attached to an AP: only these Links are limited."""
        return self.attachment_point is not None

    @property
    def maximum_kbit(self) -> int:
        """The maximum its limits are clamped to: that of the AP, or an exception above it."""
        ap = self.attachment_point
        return MAX_BANDWIDTH_KBIT if ap is None else with_exception(ap.maximum_kbit, self.exception_kbit)

    @property
    def requested(self) -> Limits:
        """The user's choice in each direction."""
        return Limits.of_columns(self.bandwidth_kbit, self.from_user_kbit)

    @property
    def enforced(self) -> Limits:
        """The limit in force without timed limits: the user's choice, clamped to `maximum_kbit`."""
        return self._clamped(self.requested)

    @property
    def enforced_kbit(self) -> int:
        """The lower of both directions [kbit/s]."""
        return self.enforced.lowest_kbit

    @property
    def is_to_observe(self) -> bool:
        """Whether administrators set this Link, or the whole attachment point, to observe only."""
        ap = self.attachment_point
        return ap is not None and (self.observe_only or ap.observe_only)

    @property
    def is_published(self) -> bool:
        """Whether its attachment point publishes limits, and this service provides all of its SCION files."""
        ap = self.attachment_point
        if ap is None or not self.active or not ap.publishes_limits:
            return False
        return not ap.host.limits_only

    @property
    def published_kbit(self) -> int | None:
        """The number in the path metadata (`scion_files.published_limits`) for both directions, or None."""
        return self.enforced_kbit or None if self.is_published and not self.is_to_observe else None

    @property
    def held_until(self) -> datetime | None:
        """If its newest change waits for a restart of SCION at the attachment point (`testbed.versions.restarts`): when
        that is, at the latest."""
        host = self.interface_a.host
        return host.restart_due_at if self.wanted_config_version > host.config_version else None

    @property
    def timed_in_configuration(self) -> list[TimedLimit]:
        """Timed limits that are neither cancelled nor retired, in order of time. No SQL statement if prefetched
        (`selectors.with_relations`)."""
        return sorted(
            (one for one in self.timed_limits.all() if one.is_in_configuration), key=lambda one: one.begins_at
        )

    def limits_at(self, when: datetime) -> Limits:
        """The clamped limit at a moment: that of a running timed limit, otherwise `enforced`."""
        return self._clamped(limits_at(self.requested, (one.limits for one in self.timed_in_configuration), when))

    def _clamped(self, limits: Limits) -> Limits:
        return limits.clamped(self.maximum_kbit)


def is_user_as(as_: AS) -> bool:
    return isinstance(as_, UserAS) or hasattr(as_, "useras")
