"""`python -m lab.seed_demo`: a small SCIONLab in the database (see `lab.seed`)."""

from __future__ import annotations

import os
import secrets
import sys
from argparse import ArgumentParser
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

if not apps.ready:  # run as a program
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")
    django.setup()

from bandwidth_config import RuleError
from lab.seed import DemoUser, Seeded, seed_demo

# The demo's passwords are public; any other settings may be somebody's production.
HARMLESS_SETTINGS = {"scionlab.settings.dev", "scionlab.settings.test"}


def random_password(demo: DemoUser) -> str:
    return f"{demo.role}-{secrets.token_urlsafe(12)}"


class Command(BaseCommand):
    help = (
        "Creates a small SCIONLab: two ISDs, three attachment points, users and user ASes. A second run changes "
        "nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="dry run: show what would be created")
        parser.add_argument(
            "--force", action="store_true", help="allow it outside of development; accounts get random passwords"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        harmless = settings.SETTINGS_MODULE in HARMLESS_SETTINGS
        if not harmless and not options["force"]:
            raise CommandError(
                f"The settings are {settings.SETTINGS_MODULE}: this may be production, and the demo adds accounts "
                "and ASes. Use --force to continue."
            )
        try:
            with transaction.atomic():
                seeded = seed_demo(password_of=None if harmless else random_password)
                if options["dry_run"]:
                    transaction.set_rollback(True)
        except RuleError as exc:
            raise CommandError(f"Nothing was created. {exc.message}") from exc
        self._report(seeded, dry_run=options["dry_run"])

    def _report(self, seeded: Seeded, *, dry_run: bool) -> None:
        verb = "would create" if dry_run else "made"
        for line in seeded.made:
            self.stdout.write(f"{verb} {line}")
        if not seeded.made:
            self.stdout.write("The demo data exists already; nothing was changed.")
        if dry_run:
            self.stdout.write("Dry run: nothing was changed.")
            return
        self.stdout.write("\nAccounts:")
        for account in seeded.accounts:
            password = account.password or "(changed since; not known here)"
            self.stdout.write(f"  {account.role:<14} {account.email:<24} {password}")


if __name__ == "__main__":
    Command().run_from_argv(["python -m", "lab.seed_demo", *sys.argv[1:]])
