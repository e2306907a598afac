"""`manage.py import_scionlab FILE --kbit N`: imports a dump of SCIONLab's coordination service (docs/import.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError, check_bandwidth, parse_bandwidth
from scionlab.importer.dump import MAX_DUMP_BYTES, DumpError
from scionlab.importer.importer import import_scionlab
from scionlab.importer.network import read_network

USAGE = 2  # exit code; 1: nothing was imported because of errors


class Command(BaseCommand):
    help = (
        "Imports a dump of the SCIONLab coordination service (its manage.py dumpdata scionlab): ASes, hosts, "
        "attachment points, Links and accounts. Imported hosts get limits only, and imported attachment points "
        "observe only. Another run updates what differs; nothing is deleted."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE", type=Path, help="JSON file of dumpdata")
        parser.add_argument(
            "--kbit",
            required=True,
            metavar="N",
            help="limit of each new Link of a user AS, in both directions [kbit/s]; 0 blocks them",
        )
        parser.add_argument("--skip-invalid", action="store_true", help="skip invalid entries, import the rest")
        parser.add_argument("--dry-run", action="store_true", help="dry run: show the changes, change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        kbit = self._kbit(options["kbit"])
        content = self._content(options["file"])
        self._progress(f"reading {len(content) / 1e6:.1f} MB")
        try:
            report = import_scionlab(
                network=read_network(content),
                kbit=kbit,
                skip_invalid=options["skip_invalid"],
                dry_run=options["dry_run"],
                progress=self._progress,
            )
        except (DumpError, RuleError) as exc:
            raise CommandError(f"Nothing was imported. {exc}") from exc
        for line in report.lines():
            self.stdout.write(line)
        if report.is_refused:
            raise CommandError(
                f"Nothing was imported: {len(report.problems)} entries are invalid. Correct them in the source "
                "and dump again, or skip them with --skip-invalid."
            )

    def _kbit(self, text: str) -> int:
        try:
            kbit = parse_bandwidth(text)
            check_bandwidth(kbit)
        except RuleError as exc:
            raise CommandError(f"--kbit: {exc.message}", returncode=USAGE) from exc
        return kbit

    def _content(self, path: Path) -> bytes:
        """Read at most one byte above the limit, so that larger files are rejected."""
        try:
            with path.open("rb") as file:
                return file.read(MAX_DUMP_BYTES + 1)
        except OSError as exc:
            raise CommandError(f"{path} cannot be read: {exc.strerror}.", returncode=USAGE) from exc

    def _progress(self, what: str) -> None:
        self.stderr.write(f"import_scionlab: {what}", self.style.NOTICE)
