"""What a person types where there is no form that checks it."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.exceptions import BadRequest
from django.http import HttpRequest


def typed_text(request: HttpRequest, name: str) -> str:
    """A field of a POST without spaces around it. Raises `BadRequest` for a null character, which no column keeps."""
    text = request.POST.get(name, "").strip()
    if "\x00" in text:
        raise BadRequest(f"The {name} has a null character, which cannot be stored. Nothing was changed.")
    return text


def typed_keys(texts: Iterable[str]) -> list[int]:
    """Keys of rows among these texts, such as the values of ticked boxes; others are skipped."""
    return [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 19]
