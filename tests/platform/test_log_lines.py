"""Nobody writes lines of their own into the service's log."""

from __future__ import annotations

import copy
import io
import json
import logging
import logging.config
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import signals
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from django_guid import clear_guid, get_guid, set_guid
from django_guid.middleware import guid_middleware

from scionlab.delivery.host_api.documents import DocumentError
from scionlab.enforcement.receipt_format import parse_receipt


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the settings' own handler writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    as_set: Any = copy.deepcopy(settings.LOGGING)
    handler.setFormatter(logging.config.DictConfigurator(as_set).configure_formatter(as_set["formatters"]["line"]))
    logger = logging.getLogger("scionlab.tried")
    logger.addHandler(handler)
    yield stream
    logger.removeHandler(handler)


def test_a_receipt_cannot_write_a_line_of_its_own(written: io.StringIO) -> None:
    forged = {"schema": 1, "writes": 0, "links": {"\nERROR root forged": {}}}
    with pytest.raises(DocumentError) as caught:
        parse_receipt(json.dumps(forged).encode())
    logging.getLogger("scionlab.tried").warning("receipt.refused host=%s %s", 7, caught.value.message)
    assert "ERROR root forged" in written.getvalue()
    assert written.getvalue().count("\n") == 1
    assert r" WARNING scionlab.tried - receipt.refused host=7 links.\nERROR root forged: Send" in written.getvalue()


def test_of_a_traceback_no_line_looks_like_an_event(written: io.StringIO) -> None:
    try:
        raise ValueError("bad\nERROR root forged")
    except ValueError:
        logging.getLogger("scionlab.tried").exception("it.failed")
    first, *others = written.getvalue().splitlines()
    assert first.endswith("Z ERROR scionlab.tried - it.failed")
    assert others[-1] == "    ERROR root forged"
    assert all(line.startswith("    ") for line in others)


def test_a_line_has_its_time_in_utc_and_the_request_that_caused_it(written: io.StringIO) -> None:
    logger = logging.getLogger("scionlab.tried")
    record = logger.makeRecord(logger.name, logging.WARNING, __file__, 1, "it.happened", (), None)
    record.created = 1_800_000_000.25
    set_guid("0123456789abcdef" * 2)
    logger.handle(record)
    clear_guid()
    assert written.getvalue() == (
        "2027-01-15T08:00:00.250Z WARNING scionlab.tried 0123456789abcdef0123456789abcdef it.happened\n"
    )


@pytest.mark.parametrize(("told", "taken"), [("0123456789abcdef" * 2, True), ("", False), ("x" * 32, False)])
def test_an_id_is_taken_from_the_proxy_in_its_form_alone(told: str, taken: bool) -> None:
    during: list[str] = []

    def view(_: HttpRequest) -> HttpResponse:
        during.append(get_guid())
        return HttpResponse()

    answer = guid_middleware(view)(RequestFactory().get("/", headers={"X-Request-ID": told}))
    assert (during[0] == told) == taken
    assert re.fullmatch("[0-9a-f]{32}", during[0])
    assert get_guid() == during[0], "Django logs more of it behind the middleware"
    assert "X-Request-ID" not in answer.headers  # nginx says it
    clear_guid()


def test_a_task_runs_under_the_id_of_the_request_that_queued_it() -> None:
    set_guid("0123456789abcdef" * 2)
    headers: dict[str, str] = {}
    signals.before_task_publish.send(sender="x", headers=headers)
    clear_guid()
    queued = SimpleNamespace(request=headers)
    signals.task_prerun.send(sender="x", task_id="1", task=queued)
    assert get_guid() == "0123456789abcdef" * 2
    signals.task_postrun.send(sender="x", task_id="1", task=SimpleNamespace(name="x"), state="SUCCESS")
    assert get_guid() is None
