"""Pages of Django admin."""

from scionlab.user_ases.admin import link, user_as

__all__ = ["link", "user_as"]
