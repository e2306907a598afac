"""OpenVPN of an attachment point: addresses, and keys of the server and its clients."""

from __future__ import annotations

from django.db import models

from scionlab.platform.clock import database_now
from scionlab.testbed.models.host import Host


class VPN(models.Model):
    """The VPN server on an attachment point's host."""

    host = models.OneToOneField(Host, on_delete=models.CASCADE, related_name="vpn")
    subnet = models.CharField(max_length=43, help_text="For example 10.10.1.0/24.")
    server_ip = models.GenericIPAddressField("server's IP in the VPN")
    server_port = models.PositiveIntegerField(default=1194)

    class Meta:
        verbose_name = "VPN"

    def __str__(self) -> str:
        return f"VPN {self.subnet} on {self.host}"


class VPNClient(models.Model):
    """A user AS's host as a client of an attachment point's VPN."""

    vpn = models.ForeignKey(VPN, on_delete=models.CASCADE, related_name="clients")
    host = models.ForeignKey(Host, on_delete=models.CASCADE, related_name="vpn_clients")
    ip = models.GenericIPAddressField("IP in the VPN")

    class Meta:
        verbose_name = "VPN client"
        constraints = [
            models.UniqueConstraint(fields=["vpn", "ip"], name="vpn_client_ip_once_per_vpn"),
            models.UniqueConstraint(fields=["vpn", "host"], name="vpn_client_once_per_host"),
        ]

    def __str__(self) -> str:
        return f"{self.ip} in {self.vpn.subnet}"


# Separate tables, so that lists of VPNs do not read keys. Private keys are encrypted as in `SigningKey`.


class VPNServerKeys(models.Model):
    """CA and server certificate of a VPN. A VPN without them has an OpenVPN set up by its operator."""

    vpn = models.OneToOneField(VPN, on_delete=models.CASCADE, related_name="keys")
    ca_certificate = models.TextField(editable=False)
    ca_key_encrypted = models.TextField(editable=False)
    certificate = models.TextField(editable=False)
    key_encrypted = models.TextField(editable=False)
    made_at = models.DateTimeField("made", default=database_now, editable=False)

    class Meta:
        verbose_name = "keys of a VPN server"

    def __str__(self) -> str:
        return f"keys of {self.vpn}"


class VPNClientKeys(models.Model):
    """A client's certificate. Its common name is never reused: the server admits clients by it."""

    client = models.OneToOneField(VPNClient, on_delete=models.CASCADE, related_name="keys")
    common_name = models.CharField(max_length=64, unique=True, editable=False)
    certificate = models.TextField(editable=False)
    key_encrypted = models.TextField(editable=False)

    class Meta:
        verbose_name = "keys of a VPN client"

    def __str__(self) -> str:
        return self.common_name
