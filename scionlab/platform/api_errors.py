"""Errors of all APIs: `{"code", "message", "fields": {name: [{"code", "message"}]}}`.

`code` and `message` are those of the first error; `fields` has every invalid field by a path of names and positions
("attachments.0.public_ip"). Messages of rules are those of the web form.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, JsonResponse
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import exception_handler as drf_exception_handler

from bandwidth_config import RuleError
from scionlab.platform.etags import Stale
from scionlab.platform.field_errors import FieldRuleError

FieldErrors = dict[str, list[dict[str, str]]]

# Broken rules are 400, except these.
OTHER_STATUSES = {
    "idempotency_mismatch": status.HTTP_422_UNPROCESSABLE_ENTITY,
    "idempotency_secret": status.HTTP_409_CONFLICT,
    "test_slot_taken": status.HTTP_409_CONFLICT,
    "test_not_armed": status.HTTP_409_CONFLICT,
    "test_over": status.HTTP_409_CONFLICT,
}


class RuleViolations(exceptions.APIException):
    """One or more broken rules, as 400."""

    status_code: int = status.HTTP_400_BAD_REQUEST

    def __init__(self, errors: Sequence[RuleError]) -> None:
        super().__init__(detail=errors[0].message, code=errors[0].code)
        self.errors = errors
        self.status_code = OTHER_STATUSES.get(errors[0].code, self.status_code)
        self.headers: Mapping[str, str] = getattr(errors[0], "headers", {})


def body(code: str, message: str, fields: FieldErrors | None = None) -> dict[str, Any]:
    told = {
        name: [{"code": one["code"], "message": _sendable(one["message"])} for one in errors]
        for name, errors in (fields or {}).items()
    }
    return {"code": code, "message": _sendable(message), "fields": told}


def _sendable(text: str) -> str:
    """JSON can contain a lone surrogate (U+D800), which a message may repeat and UTF-8 cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def rule_body(errors: Iterable[RuleError]) -> dict[str, Any]:
    """Broken rules; a rule with a field is listed at it."""
    listed = list(errors)
    fields: FieldErrors = {}
    for error in listed:
        if isinstance(error, FieldRuleError):
            name = error.field if error.index is None else f"attachments.{error.index}.{error.field}"
            fields.setdefault(name, []).append({"code": error.code, "message": error.message})
    return body(listed[0].code, listed[0].message, fields)


def error_response(code: str, message: str, http_status: int, fields: FieldErrors | None = None) -> JsonResponse:
    """For views outside of REST framework: the host API."""
    return JsonResponse(body(code, message, fields), status=http_status)


def exception_handler(exc: Exception, context: dict[str, Any]) -> Response | None:
    """REST framework's hook. Returns None for a server error, which is logged with its traceback."""
    if isinstance(exc, RuleError):
        exc = RuleViolations([exc])
    if isinstance(exc, ValidationError):
        exc = exceptions.ValidationError(as_details(exc))
    response = drf_exception_handler(exc, context)
    if response is None:
        return None
    response.data = _data(exc)
    for name, value in getattr(exc, "headers", {}).items():
        response[name] = value
    return response


def as_details(error: ValidationError) -> Any:
    """A model's validation errors in REST framework's form."""
    if hasattr(error, "error_dict"):
        return {name: as_details(ValidationError(errors)) for name, errors in error.error_dict.items()}
    return [exceptions.ErrorDetail(one.messages[0], one.code or "invalid") for one in error.error_list]


def _data(exc: Exception) -> dict[str, Any]:  # noqa: PLR0911  a kind of error each
    match exc:
        case RuleViolations():
            return rule_body(exc.errors) | getattr(exc.errors[0], "more", {})
        case exceptions.ValidationError():
            fields: FieldErrors = {}
            _collect(exc.get_full_details(), (), fields)
            first = next(iter(fields.values()))[0]
            return body(first["code"], first["message"], fields)
        case Http404() | exceptions.NotFound():
            return body("not_found", "The object does not exist, or it belongs to another account.")
        case PermissionDenied() | exceptions.PermissionDenied():
            detail = getattr(exc, "detail", None)
            return body(getattr(detail, "code", "permission_denied"), str(exc) or "Permission denied.")
        case exceptions.Throttled():
            return body("throttled", f"Too many requests. Try again in {math.ceil(getattr(exc, 'wait', None) or 1)} s.")
        case Stale():
            return {**body("stale", str(exc.detail)), "current": exc.current}
        case exceptions.APIException():
            return body(getattr(exc.detail, "code", exc.default_code), str(exc.detail))
        case _:
            raise TypeError(f"{exc!r} has an answer but no words")


def _collect(details: Any, path: tuple[str, ...], fields: FieldErrors) -> None:
    if isinstance(details, Mapping) and set(details) == {"message", "code"}:
        name = ".".join(path) or "non_field_errors"
        entry = {"code": str(details["code"]), "message": str(details["message"])}
        fields.setdefault(name, []).append(entry)
    elif isinstance(details, Mapping):
        for key, value in details.items():
            _collect(value, (*path, str(key)), fields)
    elif isinstance(details, list):
        # A list of errors of one field, or one mapping of errors per item of a list field.
        for index, value in enumerate(details):
            is_error = isinstance(value, Mapping) and set(value) == {"message", "code"}
            _collect(value, path if is_error else (*path, str(index)), fields)
