"""Parsers of request bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework import exceptions, parsers

from scionlab.platform.notation import strict_json


class JSONParser(parsers.JSONParser):
    """Like REST framework's, but strict: that one lets the second of two equal keys win."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,  # noqa: ARG002 - both are given by REST framework
        parser_context: Mapping[str, Any] | None = None,  # noqa: ARG002
    ) -> Any:
        try:
            return strict_json.load(stream.read())
        except strict_json.StrictJSONError as exc:
            raise exceptions.ParseError(str(exc)) from exc
