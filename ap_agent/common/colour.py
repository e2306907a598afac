"""Terminal colours, unless disabled (NO_COLOR, https://no-color.org)."""

from __future__ import annotations

import os
import sys
from typing import Final, Literal

Colour = Literal["good", "warn", "bad"]
_CODES: Final[dict[Colour, str]] = {"good": "32", "warn": "33", "bad": "31"}  # ECMA-48: green, yellow, red


def has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def painted(text: str, colour: Colour) -> str:
    """Bold and coloured, if enabled."""
    return f"\033[1;{_CODES[colour]}m{text}\033[0m" if text and has_colour() else text
