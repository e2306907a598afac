"""Upload of test results by agents (docs/api.md)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Annotated, Any, Final

from django.http import HttpRequest, HttpResponse, JsonResponse
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import astuple

from contract.link_tests import MAX_WATCH_S
from scionlab.delivery.host_api.auth import host_endpoint
from scionlab.delivery.host_api.bodies import read_body
from scionlab.delivery.host_api.documents import (
    CLOCK_WITHIN,
    Document,
    Hex16,
    Hex32,
    Kind,
    Stored,
    Text32,
    TooLargeError,
    Versioned,
    WrongError,
)
from scionlab.delivery.host_api.schema import json_answer, operation_of, schema_of
from scionlab.enforcement.directions import DIRECTIONS
from scionlab.linktests.test_results import Upload, result_store
from scionlab.platform.clock import database_now
from scionlab.testbed.models import Host
from station.plan import AP
from station.report import read_report

MAX_SENT_BYTES: Final = 1024 * 1024
MAX_SAMPLES: Final = MAX_WATCH_S + 10

Series = Annotated[list[Annotated[int, Meta(ge=0, le=2**60)]], Meta(max_length=MAX_SAMPLES)]


class TestedSide(Document, frozen=True, gc=False):
    segment: Annotated[list[Hex16], Meta(max_length=MAX_SAMPLES)]
    rate_kbit: Series
    passed_bytes: Series
    passed_packets: Series
    dropped_bytes: Series
    dropped_packets: Series
    lost_packets: Annotated[Series, Meta(description="Part of passed: dropped by the queue behind the limit.")]


class ResultDocument(Versioned, frozen=True):
    agent_version: Text32
    test: Hex32
    is_final: Annotated[bool, Meta(description="No other samples will follow.")]
    times_ms: Annotated[Series, Meta(description="Clock of the host, since 1970.")]
    clock_ms: Annotated[Series, Meta(description="Monotonic clock of the host.")]
    in_force: Annotated[list[bool], Meta(max_length=MAX_SAMPLES)]
    to_user: TestedSide
    from_user: TestedSide
    report: Annotated[
        dict[str, Any] | UnsetType | None, Meta(description="What the end of a test that sends counted (docs/api.md).")
    ] = UNSET

    def __post_init__(self) -> None:
        if not all(before < after for before, after in pairwise(self.times_ms)):
            raise WrongError("times_ms", "times that ascend")
        for place, columns in (("", self), *((f"{name}.", getattr(self, name)) for name in DIRECTIONS)):
            for name in columns.__struct_fields__:
                column = getattr(columns, name)
                if isinstance(column, list) and len(column) != len(self.times_ms):
                    raise WrongError(f"{place}{name}", f"{len(self.times_ms)} values, one for each time,")


RESULT: Final = Kind(ResultDocument, "result_invalid", "The result")


_COUNTED = {"rate_kbit": [500], "passed_bytes": [1200], "passed_packets": [9]}
_SIDE = {"segment": ["0" * 15 + "7"], **_COUNTED, "dropped_bytes": [0], "dropped_packets": [0], "lost_packets": [0]}
_EXAMPLE = {
    "schema": 1,
    "agent_version": "0.1.0",
    "test": "0f" * 16,
    "is_final": False,
    "times_ms": [1_795_371_323_000],
    "clock_ms": [86_400_000],
    "in_force": [True],
    "to_user": _SIDE,
    "from_user": _SIDE,
}
_DESCRIBED = operation_of(
    "host_test_results",
    "Upload what was measured for a test of a link",
    "Absolute counters, once a second; `Content-Encoding: gzip` is accepted. Samples may come in pieces and "
    "repeatedly; after `is_final` nothing is stored.",
    body=("application/json", schema_of(ResultDocument), _EXAMPLE),
    responses={"200": json_answer("False: the test is unknown or final.", schema_of(Stored), {"stored": True})},
    errors=(400, 413),
)


@host_endpoint("POST", described=_DESCRIBED)
def test_results(request: HttpRequest, host: Host) -> HttpResponse:
    """Store samples of one test. Every user has the credentials of some host: results for tests of other hosts are
    ignored."""
    upload = parse_upload(read_body(request.read, request.headers.get("Content-Encoding", "").strip().lower()))
    return JsonResponse({"stored": result_store(host_id=host.pk, upload=upload)})


test_results.__test__ = False  # type: ignore[attr-defined]  # pytest takes it for one of its own


def parse_upload(content: bytes) -> Upload:
    """Raises only `DocumentError`, for any bytes."""
    if len(content) > MAX_SENT_BYTES:
        raise TooLargeError("too_large", f"A result has at most {MAX_SENT_BYTES} bytes unpacked.")
    document = RESULT.read(content)
    _check_times(document.times_ms)
    sides = (zip(*astuple(one), strict=True) for one in (document.to_user, document.from_user))
    rows = zip(document.times_ms, document.clock_ms, document.in_force, *sides, strict=True)
    return Upload(document.test, document.is_final, list(rows), _report(document.report))


def _check_times(times_ms: Sequence[int]) -> None:
    """Within the bounds of other times (`Kind.time_near`)."""
    now, within = database_now().timestamp() * 1000, CLOCK_WITHIN / timedelta(milliseconds=1)
    least, most = int(now - within), int(now + within)
    wrong = [one for one in times_ms if not least <= one <= most]
    if wrong:
        raise RESULT.refusal("times_ms", f"integers from {least} to {most}", wrong[0])


def _report(value: object) -> dict[str, Any] | None:
    if value is None or value is UNSET:
        return None
    try:
        report = read_report(value)
    except ValueError as exc:
        raise RESULT.refusal("report", f"a report ({exc})") from exc
    if report.side != AP:
        raise RESULT.refusal("report.side", f'"{AP}"')
    return report.to_json()
