"""Compares the versions and the digest in a poll with those of the service (DOMAIN section 4)."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

_VERSION = re.compile(r"([0-9]+)\.([0-9]+)", flags=re.ASCII)
_NUMBER = re.compile(r"[0-9]+", flags=re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", flags=re.ASCII)


def is_version(written: str) -> bool:
    """`G.H`, for example 1.18."""
    return _VERSION.fullmatch(written) is not None


def is_number(written: str) -> bool:
    return _NUMBER.fullmatch(written) is not None


def is_digest(written: str) -> bool:
    """SHA-256 as hexadecimal digits in lower case."""
    return _DIGEST.fullmatch(written) is not None


class Held(NamedTuple):
    """What a host says that it has: G.H, L, and the digest of its limits; the last two may be empty."""

    version: str
    limits: str
    digest: str

    def is_newest(self, host: Any) -> bool:
        """True if and only if the host has the newest; False for a version from the future. Empty ones are not
        compared. `host`: of `auth.hosts_with_newest`, or its `HostState`."""
        generation, _, config_version = self.version.partition(".")
        wanted = [(generation, host.generation), (config_version, host.config_version)]
        if self.limits:
            wanted.append((self.limits, host.limits_version))
        if self.digest and self.digest not in (host.issued_digests or "").split():
            return False
        # Compared as text: int() of thousands of digits is slow and then fails.
        return all((written.lstrip("0") or "0") == str(number) for written, number in wanted)
