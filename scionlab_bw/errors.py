"""Errors, by remedy. Each has an exit code (scionlab-bw(1))."""

from __future__ import annotations

from typing import Any


class ClientError(Exception):
    """`exit_code` ends the program; the text goes to stderr."""

    exit_code = 1


class Refused(ClientError):
    """Rejected by the service, with its message. `document` is its response."""

    def __init__(self, message: str, *, code: str = "", document: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.document = document or {}


class UsageError(ClientError):
    """Invalid arguments or input."""

    exit_code = 2


class Unreachable(ClientError):
    """No response, or temporarily unavailable."""

    exit_code = 3


class NotAllowed(ClientError):
    """No token, or one that is invalid or insufficient. `is_ended`: the service does not know it any more."""

    exit_code = 4

    def __init__(self, message: str, *, is_ended: bool = False) -> None:
        super().__init__(message)
        self.is_ended = is_ended
