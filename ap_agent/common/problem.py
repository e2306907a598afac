"""A problem, with a name shared by log, state file and receipt (docs/agent.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Problem:
    """`code` is stable; `subject` is a link, a device or a file; `message` is one sentence with value and remedy."""

    code: str
    subject: str
    message: str
