"""`manage.py raise_generation`: every host fetches anew, whatever it has (DOMAIN section 4)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from scionlab import selectors
from scionlab.models import Host
from scionlab.services.generation import generation_raise


class Command(BaseCommand):
    help = (
        "Raises the generation G by one: every host fetches its configuration anew, and stock clients restart SCION. "
        "Use it after a backup was restored, or when the format of the configuration changed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        hosts = Host.objects.filter(AS__isnull=False).count()
        if options["dry_run"]:
            now = selectors.generation()
            self.stdout.write(f"Dry run: the generation stays {now}. It would become {now + 1}, and {hosts} hosts")
            self.stdout.write("would fetch their configuration at their next poll; stock clients would restart SCION.")
            return
        raised = generation_raise()
        self.stdout.write(
            f"The generation was {raised - 1} and is {raised} now. {hosts} hosts fetch their configuration"
        )
        self.stdout.write("at their next poll; stock clients restart SCION and OpenVPN then.")
