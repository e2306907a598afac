"""`manage.py enrol_token`: creates a one-time token for enrolling a host's agent (docs/operations.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.delivery.enrolment import LIFETIME, enrol_command, enrolment_token_create
from scionlab.testbed.selectors import host_named


class Command(BaseCommand):
    help = (
        "Creates and prints a one-time enrolment token for a host. Anyone who has it can fetch the secret of the "
        "host once, so give it only to the person who installs the agent. An unused older token of the host is revoked."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("host", help="host id, number in Django admin, or ISD-AS of an AS with one host")
        parser.add_argument("--dry-run", action="store_true", help="dry run: show the host, create no token")

    def handle(self, *args: Any, **options: Any) -> None:
        host = host_named(options["host"])
        if host is None:
            raise CommandError(
                f'No unique host matches "{options["host"][:60]}". Give the host id, which is on the '
                "host's page in Django admin."
            )
        if options["dry_run"]:
            self.stdout.write(f"Dry run: a token would be created for {host} ({host.uid}).")
            return
        try:
            issued = enrolment_token_create(host_id=host.pk, actor=None)
        except RuleError as exc:
            raise CommandError(exc.message) from exc
        hours = int(LIFETIME.total_seconds() // 3600)
        self.stdout.write(f"Token for {host} ({host.uid}), valid once within {hours} hours. Run on the host:\n\n")
        self.stdout.write(f"    {enrol_command()}\n\nand paste this token when prompted:\n\n    {issued.text}\n")
