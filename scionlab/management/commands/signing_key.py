"""`manage.py signing_key list | rotate | revoke KEY_ID | rewrap`: the keys that sign configurations."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from bandwidth_config import RuleError
from scionlab.models import SigningKey
from scionlab.services.signing import (
    key_ring,
    near_end_of_last_key,
    service_key_line,
    signing_key_revoke,
    signing_key_rotate,
    signing_keys_rewrap,
    unreadable_keys,
)


class Command(BaseCommand):
    help = "Lists, makes and revokes the Ed25519 keys with which configurations are signed."

    def add_arguments(self, parser: ArgumentParser) -> None:
        commands = parser.add_subparsers(dest="what", required=True, metavar="list|rotate|revoke|rewrap")
        commands.add_parser("list", help="the keys, and their lines for an agent that is set up by hand")
        rotate = commands.add_parser("rotate", help="make a further key; the others go on signing until they end")
        revoke = commands.add_parser("revoke", help="never sign with a key again, and have agents believe it no more")
        revoke.add_argument("key_id", metavar="KEY_ID")
        rewrap = commands.add_parser("rewrap", help="encrypt private parts with a new SIGNING_SECRET")
        for one in (rotate, revoke, rewrap):
            one.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['what']}")(options)
        except RuleError as exc:
            raise CommandError(exc.message) from exc

    def _list(self, options: Any) -> None:
        key_ring()  # makes the first key of a new service
        unreadable = unreadable_keys()
        for key in SigningKey.objects.all():
            self.stdout.write(f"{key.key_id}  {self._state(key):<8} until {key.not_after:%Y-%m-%d}")
            if key.is_valid():
                self.stdout.write(f'    service_keys: "{service_key_line(key)}"')
            if key in unreadable:
                self.stdout.write("    CANNOT BE DECRYPTED: SIGNING_SECRET is not the one it was encrypted with")
        end = near_end_of_last_key()
        if end is not None:
            self.stdout.write(f"WARNING: the last valid key ends on {end:%Y-%m-%d}. Run manage.py signing_key rotate.")

    def _state(self, key: SigningKey) -> str:
        if key.revoked_at is not None:
            return "revoked"
        return "signs" if key.is_valid() else "ended"

    def _rotate(self, options: Any) -> None:
        if options["dry_run"]:
            self.stdout.write("Dry run: a key would be made, and L of every attachment point's host would rise.")
            return
        key = signing_key_rotate(actor=None)
        self.stdout.write(f"Made {key}, valid until {key.not_after:%Y-%m-%d}. Agents are told when they next fetch;")
        self.stdout.write("the older keys go on signing until they end. Nothing restarts.")

    def _revoke(self, options: Any) -> None:
        if options["dry_run"]:
            self.stdout.write(f"Dry run: {options['key_id']} would be revoked, for ever.")
            return
        signing_key_revoke(key_id=options["key_id"], actor=None)
        self.stdout.write(f"Revoked {options['key_id']}. Unused enrolment tokens are void.")

    def _rewrap(self, options: Any) -> None:
        if options["dry_run"]:
            self.stdout.write("Dry run: the private parts would be encrypted with the newest SIGNING_SECRET.")
            return
        count = signing_keys_rewrap()
        self.stdout.write(f"Encrypted {count} private parts with the newest SIGNING_SECRET; the former is not needed.")
