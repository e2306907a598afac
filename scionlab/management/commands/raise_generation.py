"""`manage.py raise_generation`: every host fetches anew, whatever it has (docs/operations.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.services.generation import generation_raise


class Command(BaseCommand):
    help = (
        "Raises the generation G by one, or above what hosts proved to have: every host fetches its configuration "
        "anew, and stock clients restart SCION. Use it after a backup was restored, or when the format of the "
        "configuration changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--to", type=int, metavar="G", help="raise to this generation")
        parser.add_argument("--force", action="store_true", help="with --to: skip generations, which never come back")
        parser.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")

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
            self.stdout.write(f"The generation was {raised.old} and is {raised.new} now. {raised.hosts} hosts fetch")
            self.stdout.write("their configuration at their next poll; stock clients restart SCION and OpenVPN then.")
            self.stdout.write("Nothing is known to be delivered or enforced until they report again. Enrolment tokens")
            self.stdout.write("that were not used yet are void.")
        if raised.ahead:
            self.stdout.write(f"{raised.ahead} of them proved to have what this database does not know.")
        for uid, claim in raised.unproven.items():
            self.stdout.write(
                f"Host {uid} reports generation {claim} and does not prove it: its agent may be too old to. If it is "
                f"true: --to {claim + 1} --force."
            )
