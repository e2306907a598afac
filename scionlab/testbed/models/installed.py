"""Installed SCION files of hosts, and deleted hosts."""

from __future__ import annotations

from typing import Literal

from django.conf import settings
from django.db import models

from scionlab.testbed.models.host import Host


class InstalledFiles(models.Model):
    """Which service manages the SCION files of a host, as reported by clients other than our agent. No row: unknown, as
    no such client has fetched or reported anything."""

    class Owner(models.TextChoices):
        OURS = "ours", "this service, or none"
        OTHER = "other", "another coordination service"

    host = models.OneToOneField(Host, on_delete=models.CASCADE, related_name="installed_files")
    owner = models.CharField(max_length=8, choices=Owner)
    seen_at = models.DateTimeField()
    # Of another coordination service, as reported by the host.
    version = models.CharField(max_length=40, blank=True, help_text="Empty: not reported.")
    url = models.CharField(max_length=200, blank=True, help_text="Empty: not reported.")
    files = models.JSONField(null=True, blank=True, help_text="Paths in its manifest. Empty: not reported.")
    units = models.JSONField(null=True, blank=True, help_text="systemd units in its manifest. Empty: not reported.")
    taken_over_at = models.DateTimeField(null=True, blank=True)
    taken_over_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    fetched_at = models.DateTimeField(
        null=True, blank=True, help_text="When the stock client first got a full configuration from here."
    )

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"SCION files of {self.host}: {self.get_owner_display()}"

    @property
    def is_another_services(self) -> bool:
        """True until an administrator takes the host over."""
        return self.owner == self.Owner.OTHER and self.taken_over_at is None


FilesState = Literal["this_service", "limits_only", "other", "taken_over"]
FILES_WORDS: dict[FilesState, str] = {
    "this_service": "",
    "limits_only": "Limits only: another service manages the SCION files",
    "other": "Refused: the host has SCION files of another coordination service",
    "taken_over": "Taken over from another coordination service, not fetched yet",
}


def files_state(host: Host) -> FilesState:
    """Which service manages the SCION files of the host; this one if unknown."""
    if host.limits_only:
        return "limits_only"
    known = getattr(host, "installed_files", None)
    if known is None or known.owner == InstalledFiles.Owner.OURS:
        return "this_service"
    return "other" if known.is_another_services else "taken_over"


class DeletedHost(models.Model):
    """Hashed credentials of a deleted host: for 30 days its polls are answered 204, so that the stock client stops
    SCION. A secret has 128 random bits, so its SHA-256 does not reveal it."""

    uid = models.CharField("host id", max_length=32, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    previous_secret_sha256 = models.CharField(max_length=64, blank=True)
    deleted_at = models.DateTimeField(db_index=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"deleted host {self.uid}"
