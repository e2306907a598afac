"""Pages of Django admin."""

from scionlab.scion_config.admin import host_files, trust

__all__ = ["host_files", "trust"]
