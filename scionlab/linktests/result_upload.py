"""Upload of test results by agents (docs/api.md)."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse

from contract.link_tests import MAX_WATCH_S
from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.bodies import TooLargeError, read_body
from scionlab.delivery.host_api.document_reader import CLOCK_WITHIN, DocumentError, DocumentReader, load, require_schema
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.linktests.test_results import Sample, SideSample, Upload, result_store
from scionlab.platform.api_errors import error_response
from scionlab.platform.clock import database_now
from scionlab.testbed.models import Host
from station.plan import AP
from station.report import read_report

logger = logging.getLogger(__name__)

MAX_SENT_BYTES: Final = 1024 * 1024
MAX_SAMPLES: Final = MAX_WATCH_S + 10
MAX_COUNTER: Final = 2**60

_HEX_32 = re.compile(r"[0-9a-f]{32}", flags=re.ASCII)
_HEX_16 = re.compile(r"[0-9a-f]{16}", flags=re.ASCII)


@host_endpoint("POST")
def test_results(request: HttpRequest, host: Host) -> HttpResponse:
    """Store samples of one test. Every user has the credentials of some host: results for tests of other hosts are
    ignored."""
    try:
        content = read_body(request.read, request.headers.get("Content-Encoding", "").strip().lower())
        upload = parse_upload(content)
    except DocumentError as exc:
        logger.warning("test_results.refused host=%s code=%s %s", host.pk, exc.code, exc.message)
        return error_response(exc.code, exc.message, 413 if isinstance(exc, TooLargeError) else 400, exc.fields)
    return JsonResponse({"stored": result_store(host_id=host.pk, upload=upload)})


test_results.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own


def parse_upload(content: bytes) -> Upload:
    """Raises only `DocumentError`, for any bytes."""
    if len(content) > MAX_SENT_BYTES:
        raise TooLargeError("too_large", f"A result has at most {MAX_SENT_BYTES} bytes unpacked.")
    document = load(content)
    if not isinstance(document, dict):
        raise DocumentError("result_invalid", "The result: send an object here.")
    require_schema(document)
    reader = DocumentReader()
    upload = _upload(reader, document)
    reader.refuse("result_invalid", "The result")
    return upload


def _upload(reader: DocumentReader, document: dict[str, Any]) -> Upload:
    is_final = document.get("is_final")
    reader.expect(isinstance(is_final, bool), "is_final", "true or false")
    times = _times(reader, document.get("times_ms"))
    reader.expect(all(before < after for before, after in pairwise(times)), "times_ms", "times that ascend")
    count = len(times)
    clock = _numbers(reader, document.get("clock_ms"), "clock_ms", count, MAX_COUNTER)
    in_force = _column(reader, document.get("in_force"), "in_force", count)
    reader.expect(all(isinstance(one, bool) for one in in_force), "in_force", "true or false for each time")
    sides = [_side(reader, document.get(name), name, count) for name in DIRECTIONS]
    test_id = reader.matching(document.get("test"), "test", _HEX_32, "32 hexadecimal digits in lower case")
    agent_version = reader.text(document.get("agent_version"), "agent_version", 32)
    report = _report(reader, document.get("report"))
    if reader.fields:  # then the columns differ in length
        return Upload(test_id, agent_version, False, ())
    samples = [Sample(*row) for row in zip(times, clock, in_force, *sides, strict=True)]
    return Upload(test_id, agent_version, bool(is_final), samples, report)


def _times(reader: DocumentReader, value: object) -> Sequence[int]:
    """Within the bounds of other times (`DocumentReader.time`)."""
    now, within = database_now().timestamp() * 1000, CLOCK_WITHIN / timedelta(milliseconds=1)
    found = _numbers(reader, value, "times_ms", None, int(now + within))
    least = int(now - within)
    reader.expect(all(one >= least for one in found), "times_ms", f"integers from {least} on", *found[:1])
    return found


def _report(reader: DocumentReader, value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        report = read_report(value)
    except ValueError as exc:
        reader.expect(False, "report", f"a report ({exc})")
        return None
    reader.expect(report.side == AP, "report.side", f'"{AP}"')
    return report.to_json()


def _side(reader: DocumentReader, value: object, place: str, count: int) -> list[SideSample]:
    said = reader.mapping(value, place)
    segments = _column(reader, said.get("segment"), f"{place}.segment", count)
    for index, one in enumerate(segments):
        reader.matching(one, f"{place}.segment.{index}", _HEX_16, "16 hexadecimal digits in lower case")
    columns = [
        _numbers(reader, said.get(name), f"{place}.{name}", count, MAX_COUNTER) for name in SideSample._fields[1:]
    ]
    if reader.fields:
        return []
    return [SideSample(*row) for row in zip(segments, *columns, strict=True)]


def _column(reader: DocumentReader, value: object, place: str, count: int | None) -> list[Any]:
    found = reader.listed(value, place, MAX_SAMPLES, "values")
    reader.expect(count is None or len(found) == count, place, f"{count} values, one for each time,")
    return found


def _numbers(reader: DocumentReader, value: object, place: str, count: int | None, high: int) -> Sequence[int]:
    found = _column(reader, value, place, count)
    if all(type(one) is int and 0 <= one <= high for one in found):
        return found
    wrong = next(one for one in found if not (type(one) is int and 0 <= one <= high))
    reader.expect(False, place, f"integers from 0 to {high}", wrong)
    return []
