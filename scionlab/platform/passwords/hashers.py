"""Django's hashers, whose work is done in `scionlab.platform.passwords.place`. By PASSWORD_HASHERS every door uses
them: pages, REST API, Django admin, management commands, and the hash that Django computes for an account that does not
exist."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import hashers
from django.views.decorators.debug import sensitive_variables

from scionlab.platform.passwords.place import place


class Argon2Hasher(hashers.Argon2PasswordHasher):
    """argon2id, OWASP Password Storage Cheat Sheet: 19 MiB, 2 iterations, 1 lane.

    (Django's default is 100 MiB in 8 lanes: five times the memory for each of the log-ins that strangers begin.)
    Hashes of other parameters are verified with their own and replaced when their owners log in.
    """

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
    """Read, and replaced when its owner logs in."""

    @sensitive_variables()
    def encode(self, password: str, salt: str, iterations: int | None = None) -> str:
        return str(_ask("pbkdf2_sha256", "encode", password, salt, iterations))

    @sensitive_variables()
    def verify(self, password: str, encoded: str) -> bool:
        return bool(_ask("pbkdf2_sha256", "verify", password, encoded))


@sensitive_variables()
def _ask(algorithm: str, method: str, *arguments: Any, **parameters: int) -> str | bool:
    request = {"algorithm": algorithm, "parameters": parameters, "method": method, "arguments": arguments}
    return place().ask(request)
