"""What the app adds to those below it."""

from django.apps import AppConfig


class PathsConfig(AppConfig):
    name = "scionlab.paths"
    label = "paths"

    def ready(self) -> None:
        from scionlab.paths.life import MetadataLife
        from scionlab.testbed.life import LIVES

        LIVES.append(MetadataLife())
