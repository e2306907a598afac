"""`manage.py signing_key list | rotate | revoke KEY_ID | rewrap`: the keys that sign configurations."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.delivery.models import SigningKey
from scionlab.delivery.signing import (
    end_of_last_key,
    key_ring,
    near_end,
    service_key_line,
    signing_key_revoke,
    signing_key_rotate,
    signing_keys_rewrap,
    unreadable_keys,
)


class Command(BaseCommand):
    help = "Lists, creates and revokes the Ed25519 keys that sign configurations."

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="list|rotate|revoke|rewrap")
        commands.add_parser("list", help="list the keys, and their lines for agents that are set up by hand")
        rotate = commands.add_parser("rotate", help="create another key; the others keep signing until they expire")
        revoke = commands.add_parser("revoke", help="stop signing with a key, and tell agents to stop trusting it")
        revoke.add_argument("key_id", metavar="KEY_ID")
        rewrap = commands.add_parser("rewrap", help="encrypt private parts with a new SIGNING_SECRET")
        for one in (rotate, revoke, rewrap):
            one.add_argument("--dry-run", action="store_true", help="dry run: show the changes, change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['what']}")(options)
        except RuleError as exc:
            raise CommandError(exc.message) from exc

    def _list(self, options: Any) -> None:
        key_ring()  # creates the first key of a new service
        unreadable = unreadable_keys()
        for key in SigningKey.objects.all():
            self.stdout.write(f"{key.key_id}  {key.state:<8} until {key.not_after:%Y-%m-%d}")
            if key.is_valid():
                self.stdout.write(f'    service_keys: "{service_key_line(key)}"')
            if key in unreadable:
                self.stdout.write("    CANNOT BE DECRYPTED: it was encrypted with another SIGNING_SECRET")
        end = near_end(end_of_last_key())
        if end is not None:
            self.stdout.write(
                f"WARNING: the last valid key expires on {end:%Y-%m-%d}. Run manage.py signing_key rotate."
            )

    def _rotate(self, options: Any) -> None:
        if options["dry_run"]:
            self.stdout.write(
                "Dry run: a key would be created, and the limits version of every attachment point would rise."
            )
            return
        key = signing_key_rotate(actor=None)
        self.stdout.write(
            f"Created {key}, valid until {key.not_after:%Y-%m-%d}. Agents receive it with their next fetch;"
        )
        self.stdout.write("older keys keep signing until they expire. Nothing restarts.")

    def _revoke(self, options: Any) -> None:
        if options["dry_run"]:
            self.stdout.write(f"Dry run: {options['key_id']} would be revoked permanently.")
            return
        signing_key_revoke(key_id=options["key_id"], actor=None)
        self.stdout.write(f"Revoked {options['key_id']}. Unused enrolment tokens are revoked.")

    def _rewrap(self, options: Any) -> None:
        if options["dry_run"]:
            self.stdout.write("Dry run: the private parts would be encrypted with the newest SIGNING_SECRET.")
            return
        count = signing_keys_rewrap()
        self.stdout.write(
            f"Encrypted {count} private parts with the newest SIGNING_SECRET; the previous one is no longer needed."
        )
