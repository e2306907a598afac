"""OpenVPN of an attachment point: addresses only; keys and the OpenVPN server itself are not ours to make."""

from __future__ import annotations

from django.db import models

from scionlab.models.host import Host


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
