"""What the app adds to those below it."""

from django.apps import AppConfig


class PathsConfig(AppConfig):
    name = "scionlab.paths"
    label = "paths"

    def ready(self) -> None:
        from scionlab.limits.ap_settings import AP_SETTINGS, ApSettings
        from scionlab.paths.path_metadata import MetadataLife, checked_values, metadata_store
        from scionlab.testbed.life import LIVES

        LIVES.append(MetadataLife())
        names = frozenset({"publishes_limits", "path_metadata"})
        AP_SETTINGS.append(ApSettings(names, checked_values, metadata_store))
