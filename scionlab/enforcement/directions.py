"""The directions of a Link, as receipts, usage and results name them."""

from __future__ import annotations

from typing import Final, Literal

DirectionName = Literal["to_user", "from_user"]
DIRECTIONS: Final[tuple[DirectionName, DirectionName]] = ("to_user", "from_user")
