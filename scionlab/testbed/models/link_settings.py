"""Settings of a Link beside its limits, each declared once; type, bounds, label and help text are those of its column.

Every other place goes by this table: the update and the locking of pages (`limits.update`), Django admin, what host,
agent and limiter get (`link_ends`), which version a change raises (`versions.changes`), and the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final


class Raises(Enum):
    """What a change of a setting raises while the Link is active."""

    NOTHING = auto()  # it is in no configuration
    DOCUMENT = auto()  # L: link_info.json differs, but the limit does not, so nobody is told that it is in force
    LIMIT = auto()  # L, and the Link waits until a receipt has it
    CONFIGURATION = auto()  # H of the hosts at both ends


@dataclass(frozen=True)
class LinkSetting:
    """Column `name` of `Link`, and attribute of `bandwidth_config.LinkEnd` if it is in link_info.json. `kind` of its
    changes in the history: value and words. `said`: a new value in words."""

    name: str
    raises: Raises
    kind: tuple[str, str]
    said: Callable[[Any], str]


_SETTINGS = (
    LinkSetting(
        "active",
        Raises.CONFIGURATION,
        ("link_active", "activation of a Link"),
        lambda active: "Activated" if active else "Deactivated: in no configuration",
    ),
    LinkSetting(
        "observe_only",
        Raises.LIMIT,
        ("link_observe", "observe only, of a Link"),
        lambda on: "Observed only: nothing is limited" if on else "Limited again, no longer observed only",
    ),
)
LINK_SETTINGS: Final = {one.name: one for one in _SETTINGS}


def names_raising(*some: Raises) -> tuple[str, ...]:
    return tuple(name for name, one in LINK_SETTINGS.items() if one.raises in some)
