"""`manage.py check_migrations`: rejects migrations that break a running service (`migration_rules`)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.migrations.loader import MigrationLoader

from scionlab.platform.migration_rules import refusals


class Command(BaseCommand):
    help = "Rejects migrations that lock tables for long, or remove what the previous version still uses."

    def handle(self, *args: Any, **options: Any) -> None:
        loader = MigrationLoader(None)
        ours = sorted(key for key in loader.disk_migrations if key[0] == "scionlab")
        found = [
            refusal
            for key in ours
            for refusal in refusals(loader.disk_migrations[key], loader.project_state(key, at_end=False))
        ]
        if found:
            raise CommandError("\n".join(map(str, found)))
        self.stdout.write(f"{len(ours)} migrations can be applied while the previous version is running.")
