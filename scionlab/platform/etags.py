"""ETags and preconditions of the REST API (RFC 9110 section 13).

A tag has two halves, `"<settings>.<everything>"`. If-None-Match compares both: 304 means that the whole document is
unchanged. If-Match compares the first half only: a confirmation by the attachment point does not reject a script's
change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from django.utils.http import parse_etags
from rest_framework import exceptions, status

# Not settings: fields from receipts, the clock, or the use of tokens, at any depth of a document.
OBSERVED: Final = frozenset({"status", "state", "last_used_at", "changed_at"})
_DIGITS = 16  # 64 bit of SHA-256 for each half: enough to distinguish versions of one document


class Stale(exceptions.APIException):
    """412: the version in If-Match is outdated. `current` is the document, `etag` its tag."""

    status_code = status.HTTP_412_PRECONDITION_FAILED
    default_code = "stale"

    def __init__(self, *, current: Any, etag: str) -> None:
        super().__init__(
            "The object was changed since you read it. Your change was not saved. Check the current version, "
            '"current", '
            "then send your change with its ETag.",
            "stale",
        )
        self.current = current
        self.headers = {"ETag": etag}


class IfMatchInvalid(exceptions.APIException):
    status_code = status.HTTP_400_BAD_REQUEST

    def __init__(self) -> None:
        super().__init__(
            'If-Match is not a list of entity tags. Send the ETag as received, including the quotes, or "*".',
            "if_match_invalid",
        )


def etag_of(document: Any) -> str:
    """Strong tag of the response to a GET."""
    return f'"{_digest(_settings(document))}.{_digest(document)}"'


def check_if_match(header: str, document: Any) -> None:
    """`header` as sent. Call it with the rows of the document locked. Raises `Stale`, `IfMatchInvalid`."""
    wanted = parse_etags(header)
    if not wanted:
        raise IfMatchInvalid
    etag = etag_of(document)
    # A weak tag never matches here (RFC 9110 section 13.1.1).
    if "*" not in wanted and _set_half(etag) not in {_set_half(one) for one in wanted if not one.startswith("W/")}:
        raise Stale(current=document, etag=etag)


def is_known(header: str, etag: str) -> bool:
    """Whether If-None-Match contains the tag (weak comparison)."""
    return any(one in {"*", etag} for one in (tag.removeprefix("W/") for tag in parse_etags(header)))


def _set_half(etag: str) -> str:
    return etag.partition(".")[0]


def _settings(document: Any) -> Any:
    """The document without observed fields."""
    if isinstance(document, dict):
        return {name: _settings(value) for name, value in document.items() if name not in OBSERVED}
    if isinstance(document, list | tuple):
        return [_settings(one) for one in document]
    return document


def _digest(document: Any) -> str:
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
