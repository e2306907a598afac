"""Files that other apps add to a host's tarball."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scionlab.testbed.models import Host

# Appended in `AppConfig.ready`: path in the tarball -> content; raises `RuleError`, then the host keeps what it has.
FILES: Final[list[Callable[[Host], dict[str, bytes]]]] = []


def added_files(host: Host) -> dict[str, bytes]:
    """Raises `RuleError` of the app that makes a file."""
    found: dict[str, bytes] = {}
    for files_of in FILES:
        found |= files_of(host)
    return found
