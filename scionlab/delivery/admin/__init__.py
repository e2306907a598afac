"""Pages of Django admin."""

from scionlab.delivery.admin import host, signing

__all__ = ["host", "signing"]
