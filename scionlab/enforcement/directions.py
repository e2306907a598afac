"""The directions of a Link, as receipts, usage and results name them."""

from __future__ import annotations

from typing import Final, Literal

DirectionName = Literal["to_user", "from_user"]
DIRECTIONS: Final[tuple[DirectionName, DirectionName]] = ("to_user", "from_user")
WORDS: Final = {"to_user": "to your AS", "from_user": "from your AS"}
NAMES: Final = {"to_user": "To your AS", "from_user": "From your AS"}
