"""One id for what a request causes: nginx's log, the lines of the web tier, and those of tasks that it queued.

nginx makes it (`X-Request-ID`) and tells whoever asked. Tasks that no request queued have their own id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4

from celery import signals
from django.core.signals import request_finished
from django.http import HttpRequest
from django.http.response import HttpResponseBase

NOBODYS: Final = "-"
_FORM = re.compile(r"[0-9a-f]{32}")  # what comes from elsewhere is not repeated in the log

request_id: ContextVar[str] = ContextVar("request_id", default=NOBODYS)


class RequestIdMiddleware:
    """Takes the id of the request, or makes one where no proxy did."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        _begin(request.headers.get("X-Request-ID", ""))
        return self._get_response(request)


def connect() -> None:
    """At the start of every process; the signals come where requests are answered, tasks are queued, and tasks run."""
    # Django logs what was not found behind all middleware.
    request_finished.connect(_end, dispatch_uid="scionlab.platform.request_ids")
    signals.before_task_publish.connect(_hand_on, dispatch_uid="scionlab.platform.request_ids")
    signals.task_prerun.connect(_take, dispatch_uid="scionlab.platform.request_ids")
    signals.task_postrun.connect(_end, dispatch_uid="scionlab.platform.request_ids")


def _begin(told: str) -> None:
    request_id.set(told if _FORM.fullmatch(told) else uuid4().hex)


def _hand_on(headers: MutableMapping[str, Any], **_: Any) -> None:
    headers["request_id"] = request_id.get()


def _take(task: Any, **_: Any) -> None:
    _begin(str(task.request.get("request_id")))


def _end(**_: Any) -> None:
    """The thread or process does something else next."""
    request_id.set(NOBODYS)
