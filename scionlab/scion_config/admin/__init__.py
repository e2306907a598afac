"""Pages of Django admin."""

from scionlab.scion_config.admin import keys

__all__ = ["keys"]
