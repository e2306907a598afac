"""Django's hashers, delegating to `scionlab.platform.passwords.place`. PASSWORD_HASHERS applies to pages, REST API,
Django admin, commands, and to the hash that Django computes for unknown accounts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import hashers
from django.views.decorators.debug import sensitive_variables

from scionlab.platform.passwords.place import place


class Argon2Hasher(hashers.Argon2PasswordHasher):
    """argon2id, OWASP Password Storage Cheat Sheet: 19 MiB, 2 iterations, 1 lane. (Django's default of 100 MiB in 8
    lanes takes five times the memory for each login attempt.) Hashes with other parameters are verified with their own
    and replaced at the next login."""

    memory_cost = 19 * 1024  # KiB
    time_cost = 2
    parallelism = 1

    @sensitive_variables()
    def encode(self, password: str, salt: str) -> str:
        parameters = {name: getattr(self, name) for name in ("memory_cost", "time_cost", "parallelism")}
        return str(_ask("argon2", "encode", password, salt, **parameters))

    @sensitive_variables()
    def verify(self, password: str, encoded: str) -> bool:
        return bool(_ask("argon2", "verify", password, encoded))


class Pbkdf2Hasher(hashers.PBKDF2PasswordHasher):
    """Only verified; replaced at the next login."""

    @sensitive_variables()
    def verify(self, password: str, encoded: str) -> bool:
        return bool(_ask("pbkdf2_sha256", "verify", password, encoded))


@sensitive_variables()
def _ask(algorithm: str, method: str, *arguments: Any, **parameters: int) -> str | bool:
    return place().submit(algorithm, parameters, method, arguments)
