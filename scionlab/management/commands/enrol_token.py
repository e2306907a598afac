"""`manage.py enrol_token`: a one-time token with which a host's agent fetches its credentials (docs/operations.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.selectors import host_named
from scionlab.services.enrolment import LIFETIME, enrol_command, enrolment_token_create


class Command(BaseCommand):
    help = (
        "Makes a one-time token for a host and prints it. Whoever has it can fetch the host's secret once, so give it "
        "to nobody but whoever installs the agent. An unused older token of the host becomes void."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("host", help="host id, number in Django admin, or ISD-AS of an AS with one host")
        parser.add_argument("--dry-run", action="store_true", help="only say for which host a token would be made")

    def handle(self, *args: Any, **options: Any) -> None:
        host = host_named(options["host"])
        if host is None:
            raise CommandError(
                f'No host is named "{options["host"][:60]}", or several are. Give the host id, which is on the '
                "host's page in Django admin."
            )
        if options["dry_run"]:
            self.stdout.write(f"Dry run: a token would be made for {host} ({host.uid}).")
            return
        try:
            issued = enrolment_token_create(host_id=host.pk, actor=None)
        except RuleError as exc:
            raise CommandError(exc.message) from exc
        hours = int(LIFETIME.total_seconds() // 3600)
        self.stdout.write(f"For {host} ({host.uid}), once, within {hours} hours. On the host:\n\n")
        self.stdout.write(f"    {enrol_command()}\n\nand paste this when it asks:\n\n    {issued.text}\n")
