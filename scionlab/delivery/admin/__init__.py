"""Pages of Django admin."""

from scionlab.delivery.admin import host, host_access, signing

__all__ = ["host", "host_access", "signing"]
