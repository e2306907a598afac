"""`manage.py trc list | import FILE | reset ISD --base N`: the TRCs of the testbed (docs/scion-keys.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.platform.clock import database_now
from scionlab.scion_config.isd import trc_import, trc_reset
from scionlab.scion_config.models import TRC
from scionlab.testbed.models import ISD


class Command(BaseCommand):
    help = "Lists the TRCs, imports one from a host, or creates a new base TRC for an ISD."

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="list|import|reset")
        commands.add_parser("list", help="list all TRCs with their expiry")
        taken = commands.add_parser("import", help="import the next TRC of an ISD from a host, after verification")
        taken.add_argument("file", type=Path, metavar="FILE")
        reset = commands.add_parser(
            "reset",
            help="create a new base TRC: after restoring a backup older than TRCs on hosts, or if too many voting "
            "keys are lost",
        )
        reset.add_argument("isd", type=int, metavar="ISD")
        reset.add_argument(
            "--base",
            type=int,
            required=True,
            metavar="N",
            help="higher than every serial in /etc/scion/certs of any host",
        )
        reset.add_argument("--dry-run", action="store_true", help="dry run: show the changes, change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['what']}")(**options)
        except RuleError as exc:
            raise CommandError(exc.message) from exc

    def _list(self, **_: Any) -> None:
        for trc in TRC.objects.select_related("isd").defer("content"):
            state = "" if trc.not_after > database_now() else "  ENDED"
            self.stdout.write(f"{trc}  {trc.not_before:%Y-%m-%d} to {trc.not_after:%Y-%m-%d}{state}")

    def _import(self, *, file: Path, **_: Any) -> None:
        try:
            content = file.read_bytes()
        except OSError as exc:
            raise CommandError(f"{file} cannot be read: {exc.strerror}.") from exc
        self.stdout.write(f"Stored {trc_import(content=content, actor=None, reason='manage.py trc import')}.")

    def _reset(self, *, isd: int, base: int, dry_run: bool, **_: Any) -> None:
        found = ISD.objects.filter(isd_id=isd).first()
        if found is None:
            raise CommandError(f"ISD {isd} does not exist.")
        if dry_run:
            self.stdout.write(f"Dry run: ISD{isd}-B{base}-S{base} would be created.")
            return
        made = trc_reset(isd_id=found.pk, base=base, actor=None, reason="manage.py trc reset")
        self.stdout.write(
            f"Created {made}. SCION accepts it only from the files of a host: run manage.py raise_generation so that"
        )
        self.stdout.write("every host fetches it. Hosts without it cannot verify hosts with it.")
