"""`manage.py raise_generation`: makes every host fetch its configuration again (docs/operations.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.enforcement.generation import generation_raise


class Command(BaseCommand):
    help = (
        "Raises the generation by one, or above that of any host that proved a newer one. Every host fetches its "
        "configuration again, and stock clients restart SCION. Use it after restoring a backup, or when the "
        "format of the configuration changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--to", type=int, metavar="G", help="raise to this generation")
        parser.add_argument(
            "--force", action="store_true", help="with --to: skip generations, which cannot be used later"
        )
        parser.add_argument("--dry-run", action="store_true", help="dry run: show the changes, change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        dry_run = options["dry_run"]
        try:
            raised = generation_raise(to=options["to"], force=options["force"], dry_run=dry_run)
        except RuleError as exc:
            raise CommandError(exc.message) from exc
        if dry_run:
            self.stdout.write(f"Dry run: the generation stays {raised.old}. It would become {raised.new}, and")
            self.stdout.write(f"{raised.hosts} hosts would fetch their configuration at their next poll; stock clients")
            self.stdout.write("would restart SCION and OpenVPN then.")
        else:
            self.stdout.write(
                f"The generation was raised from {raised.old} to {raised.new}. {raised.hosts} hosts fetch"
            )
            self.stdout.write("their configuration at their next poll; stock clients restart SCION and OpenVPN then.")
            self.stdout.write("The state of all Links is unknown until the hosts report again. Enrolment tokens")
            self.stdout.write("that were not used are revoked.")
        if raised.ahead:
            self.stdout.write(f"{raised.ahead} of them proved that they have configurations unknown to this database.")
        for uid, claim in raised.unproven.items():
            self.stdout.write(
                f"Host {uid} reports generation {claim} without proof. If this is "
                f"correct, use --to {claim + 1} --force."
            )
