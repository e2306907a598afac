from typing import Any

from django.db import migrations, models

# Rows that are written every minute while nothing else changes: when hosts were last seen, and counters. With room in its
# page a row is replaced there, without a new entry in each index (docs/scale.md).
OFTEN_WRITTEN = ("scionlab_host", "scionlab_hostreceipt", "scionlab_linkenforcement")


def leave_room(_apps: Any, schema_editor: Any) -> None:
    _alter(schema_editor, "SET (fillfactor = 50)")


def fill(_apps: Any, schema_editor: Any) -> None:
    _alter(schema_editor, "RESET (fillfactor)")


def _alter(schema_editor: Any, parameter: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table in OFTEN_WRITTEN:
            schema_editor.execute(f"ALTER TABLE {table} {parameter}")


class Migration(migrations.Migration):

    short_lock = "a storage parameter: no row is read or written, and readers and writers go on"

    dependencies = [
        ('scionlab', '0025_webhook_and_saved_filters'),
    ]

    operations = [
        migrations.AddField(
            model_name='hostreceipt',
            name='links_digest',
            field=models.CharField(blank=True, db_default='', editable=False, help_text='Identifies what this receipt said of Links (enforcement.said). Empty: to be read again.', max_length=64),
        ),
        migrations.RunPython(leave_room, fill, elidable=False),
    ]
