"""What can go wrong, by who can do something about it. Each has an exit code (scionlab-bw(1))."""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """`exit_code` ends the program; the text is for people and goes to stderr."""

    exit_code = 1


class Refused(ClientError):
    """The service said no, in its own words. `document` is what it sent."""

    def __init__(self, message: str, *, code: str = "", document: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.document = document or {}


class UsageError(ClientError):
    """What was typed means nothing."""

    exit_code = 2


class Unreachable(ClientError):
    """No answer, or only that there is none now."""

    exit_code = 3


class NotAllowed(ClientError):
    """No token, or one that is not valid or does not suffice."""

    exit_code = 4
