"""The versions that a poll names, compared with those of the service (DOMAIN section 4)."""

from __future__ import annotations

import re

_VERSION = re.compile(r"([0-9]+)\.([0-9]+)", flags=re.ASCII)
_MAX_DIGITS = 10
_NUMBER = re.compile(r"[0-9]+", flags=re.ASCII)


def is_version(written: str) -> bool:
    """`G.H`, for example 1.18."""
    return _VERSION.fullmatch(written) is not None


def is_number(written: str) -> bool:
    return _NUMBER.fullmatch(written) is not None


def is_current(version: str, limits: str, *, generation: int, config_version: int, limits_version: int) -> bool:
    """True if and only if what the host has is the newest; a version from the future is not. `limits` may be empty."""
    written_generation, _, written_config = version.partition(".")
    wanted = [(written_generation, generation), (written_config, config_version)]
    if limits:
        wanted.append((limits, limits_version))
    # Compared as text: int() of somebody's thousands of digits is slow, then refused.
    return all((written.lstrip("0") or "0") == str(number) for written, number in wanted)


def numbers(version: str, limits: str) -> tuple[int, int, int | None] | None:
    """(G, H, L) of a version that `is_version`; L is None where `limits` is empty. None beyond what a column holds."""
    written = [*version.split("."), *([limits] if limits else [])]
    if any(len(one.lstrip("0")) > _MAX_DIGITS for one in written):  # int() of thousands of digits is slow
        return None
    generation, config_version, *rest = (int(one) for one in written)
    return generation, config_version, rest[0] if rest else None


def is_ahead(
    claimed: tuple[int, int, int | None], *, generation: int, config_version: int, limits_version: int
) -> bool:
    """The host has something newer than the service: a higher G, or of the same G a higher H or L."""
    theirs, config, limits = claimed
    if theirs != generation:
        return theirs > generation
    return config > config_version or (limits is not None and limits > limits_version)
