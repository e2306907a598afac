"""Compares the versions and the digest in a poll with those of the service (DOMAIN section 4)."""

from __future__ import annotations

import re

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


def is_current(
    version: str,
    limits: str,
    digest: str,
    *,
    generation: int,
    config_version: int,
    limits_version: int,
    issued_digests: str | None,
) -> bool:
    """True if and only if the host has the newest; False for a version from the future. Empty `limits` and `digest` are
    not compared. `issued_digests`: of the documents issued for these versions, separated by spaces; None if none."""
    written_generation, _, written_config = version.partition(".")
    wanted = [(written_generation, generation), (written_config, config_version)]
    if limits:
        wanted.append((limits, limits_version))
    if digest and digest not in (issued_digests or "").split():
        return False
    # Compared as text: int() of thousands of digits is slow and then fails.
    return all((written.lstrip("0") or "0") == str(number) for written, number in wanted)
