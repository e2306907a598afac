"""Versions that hosts claimed without proof: only signed texts are evidence from now on, and it does not expire."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def forget(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("scionlab", "Host").objects.using(schema_editor.connection.alias).exclude(ahead_at=None).update(
        ahead_generation=None, ahead_config_version=None, ahead_limits_version=None, ahead_at=None
    )


class Migration(migrations.Migration):
    short_lock = "writes the rows of hosts that claimed to be ahead of the database, a few at most"

    dependencies = [("scionlab", "0005_tokens_made_by_tokens")]

    operations = [migrations.RunPython(forget, migrations.RunPython.noop)]
