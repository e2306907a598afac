"""Problems reported by agents, with explanations.

The agent's own message is shown beside the explanation: it names the device, version or address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from scionlab.enforcement.explanations import EXPLANATIONS, FOREIGN, KINDS, UNKNOWN, Explanation

# Their subject is a device; the subject of all others is the whole host.
_OF_A_DEVICE: Final = frozenset(
    {
        "foreign_device",
        "interface_missing",
        "hook_obstructed",
        "filter_behind",
    }
)


@dataclass(frozen=True)
class Reported:
    """One problem of a receipt with its explanation."""

    code: str
    subject: str
    message: str
    explanation: Explanation

    @property
    def tone(self) -> str:
        return "warn" if self.explanation.is_warning else "bad"

    @property
    def in_words(self) -> str:
        """The meaning, as an item of a list."""
        return self.explanation.meaning[0].lower() + self.explanation.meaning[1:].rstrip(".")

    def concerns(self, devices: Collection[str]) -> bool:
        """Whether it concerns a Link on these devices; empty: devices unknown."""
        is_changed_device = self.code == "repeatedly_changed" and self.subject != "routing"
        if self.code in _OF_A_DEVICE or is_changed_device:
            return not devices or self.subject in devices
        return not self.subject.startswith("link ")

    @property
    def is_foreign(self) -> bool:
        return self.explanation.kind == FOREIGN

    @property
    def is_drift(self) -> bool:
        """The kernel differs, or keeps differing, from what the agent set."""
        return self.code in {"verify_failed", "repeatedly_changed"}


def reported(problems: Iterable[Any]) -> list[Reported]:
    """Parse the stored problems of a receipt; unknown shapes are shown as they are."""
    return [_one(problem) for problem in problems]


def _one(problem: Any) -> Reported:
    if not isinstance(problem, dict):
        return Reported("unknown", "", str(problem), UNKNOWN)
    code = str(problem.get("code", "unknown"))
    subject, message = str(problem.get("subject", "")), str(problem.get("message", ""))
    return Reported(code, subject, message, EXPLANATIONS.get(code, UNKNOWN))


def in_short(problems: Iterable[Reported]) -> list[str]:
    """Each kind of problem once with its count, in the order of `KINDS`."""
    counts = dict.fromkeys(KINDS, 0)
    for problem in problems:
        counts[problem.explanation.kind] += 1
    return [KINDS[kind] + (f" ({count} reports)" if count > 1 else "") for kind, count in counts.items() if count]
