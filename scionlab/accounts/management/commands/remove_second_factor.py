"""`manage.py remove_second_factor`: for users who lost phone, keys and recovery codes (docs/operations.md)."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from scionlab.accounts.models import User
from scionlab.accounts.second_factor import second_factor_remove


class Command(BaseCommand):
    help = "Removes the second factor of an account and notifies the owner by email. The password alone then suffices."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email", help="email address of the account")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(email=options["email"].lower()).first()
        if user is None or not second_factor_remove(user_id=user.pk):
            raise CommandError(f"There is no account {options['email'][:254]} with a second factor.")
        self.stdout.write(f"{user.email} no longer has a second factor.")
