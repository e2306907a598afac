"""SCION trust material: certificates of core ASes, TRCs of ISDs, and the keys of each AS.

`scionlab.scion_config.pki` defines them; `scion_config.isd` and `scion_config.chain` create them. Private keys are
encrypted with SIGNING_SECRET (`platform.secrets_box`) and never shown.
"""

from __future__ import annotations

from typing import Any

from django.db import models

from scionlab.platform.clock import database_now
from scionlab.platform.notation.isd_as import format_isd_as
from scionlab.testbed.models.isd_as import AS, ISD


class Certificate(models.Model):
    """A voter, root or CA certificate of a core AS. Rows outlive their AS: TRCs refer to them, and the voters of one
    TRC sign the next. `private_encrypted` is empty once the key is no longer needed."""

    class Kind(models.TextChoices):  # values as `scionlab.scion_config.pki.certificates.Kind`
        SENSITIVE = "sensitive-voting", "sensitive voter"
        REGULAR = "regular-voting", "regular voter"
        ROOT = "cp-root", "root"
        CA = "cp-ca", "CA"

    isd = models.ForeignKey(ISD, on_delete=models.PROTECT, related_name="certificates")
    as_id = models.BigIntegerField("AS number", help_text="A number, because the AS may be deleted.")
    kind = models.CharField(max_length=16, choices=Kind)
    issuer = models.ForeignKey(
        "self", null=True, on_delete=models.PROTECT, related_name="issued", help_text="Only of a CA."
    )
    content = models.BinaryField(help_text="DER.")
    private_encrypted = models.TextField(blank=True)
    not_before = models.DateTimeField()
    not_after = models.DateTimeField("valid until")
    created_at = models.DateTimeField(default=database_now)
    replaced_at = models.DateTimeField(null=True, help_text="Empty: this is the one in use.")

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(
                fields=["isd", "as_id", "kind"],
                condition=models.Q(replaced_at=None),
                name="one_certificate_of_a_kind_in_use",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.isd_as}"

    @property
    def isd_as(self) -> str:
        return format_isd_as(self.isd.isd_id, self.as_id)


class TRC(models.Model):
    """A signed trust root configuration. Never altered or deleted: signatures differ each time, and SCION exits on two
    files of one id with different bytes."""

    isd = models.ForeignKey(ISD, on_delete=models.PROTECT, related_name="trcs")
    base = models.PositiveIntegerField()
    serial = models.PositiveIntegerField()
    content = models.BinaryField(help_text="The .trc file: CMS in DER.")
    not_before = models.DateTimeField()
    not_after = models.DateTimeField("valid until")
    created_at = models.DateTimeField(default=database_now)

    class Meta:
        ordering = ["isd__isd_id", "base", "serial"]
        verbose_name = "TRC"
        constraints = [models.UniqueConstraint(fields=["isd", "base", "serial"], name="trc_is_made_once")]

    def __str__(self) -> str:
        return f"ISD{self.isd.isd_id}-B{self.base}-S{self.serial}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert only. Raises `ValueError` for a stored row."""
        if not self._state.adding:
            raise ValueError("A TRC cannot be changed; create its successor.")
        super().save(*args, **kwargs)


class ASKeys(models.Model):
    """Keys of an AS: two master keys shared by its hosts, and certificate and key of its control service. Deleted with
    the AS. `ca` is None, and the certificate empty, while the ISD has no core AS to issue one."""

    AS = models.OneToOneField(AS, on_delete=models.CASCADE, related_name="keys")
    master0_encrypted = models.TextField()
    master1_encrypted = models.TextField()
    ca = models.ForeignKey(Certificate, null=True, on_delete=models.PROTECT, related_name="chains")
    content = models.BinaryField(default=b"", help_text="The AS certificate in DER.")
    private_encrypted = models.TextField(blank=True)
    not_after = models.DateTimeField("valid until", null=True)
    renew_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        ordering = ["pk"]
        verbose_name = "keys of an AS"
        verbose_name_plural = "keys of ASes"

    def __str__(self) -> str:
        return f"keys of {self.AS.isd_as}"
