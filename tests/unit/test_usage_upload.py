"""A batch over HTTP: what goes over the wire, and what each answer of the service means."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ap_agent.agent.fetch import ServiceClient, UsageRefusedError, UsageUnknownError
from ap_agent.common.errors import AuthError, FetchError
from ap_agent.common.settings import Settings
from ap_agent.usage.batch import Batch
from ap_agent.usage.lives import Row
from ap_agent.usage.recorder import send_oldest
from ap_agent.usage.spool import Spool
from tests.agent_bundles import HOST_ID, SECRET
from tests.agent_service import Answer, Service, endless, reply, service, status, stored
from tests.usage_ledger import check

BEGAN = 1_795_300_020_000


@pytest.fixture
def server() -> Iterator[Service]:
    with service() as running:
        running.answers["/usage"] = stored()
        yield running


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    found = Spool(tmp_path / "usage")
    for minute in range(2):
        batch = Batch("1.18")
        batch.add(BEGAN + minute * 60_000, {(1, "to_user"): Row("4141", 500, 7, 1, 0, 0, 0, 0)})
        found.close(batch)
    return found


def client(server: Service) -> ServiceClient:
    return ServiceClient(Settings(url=server.url, host_id=HOST_ID, host_secret=SECRET, read_timeout_s=5))


def test_oldest_batch_goes_out_as_it_lies_there_and_is_deleted_then(server: Service, spool: Spool) -> None:
    first, second = spool.closed()
    data = first.read_bytes()

    assert send_oldest(spool, client(server).send_usage).name == first.name

    (request,) = server.asked("/usage")
    assert (request.method, request.body) == ("POST", data)
    assert request.credentials == f"{HOST_ID}:{SECRET}"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Content-Encoding"] == "gzip"
    check(json.loads(gzip.decompress(request.body)))
    assert spool.closed() == [second]


@pytest.mark.parametrize("code", [400, 413])
def test_refused_batch_is_set_aside_with_what_the_service_said(server: Service, spool: Spool, code: int) -> None:
    said = {"code": "usage_invalid", "message": "times: Send a list of 1 to 60 times here.", "fields": {}}
    server.answers["/usage"] = reply(code, json.dumps(said).encode(), Content_Type="application/json")
    first, second = spool.closed()

    sent = send_oldest(spool, client(server).send_usage)

    assert sent.refusal == f"The service refused it ({code}): times: Send a list of 1 to 60 times here."
    assert spool.closed() == [second]
    assert first.with_name(first.name.replace(".json.gz", ".refused")).exists()


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"message": ', b"[]", b"\xff"])
def test_refusal_that_says_nothing_is_one_too(server: Service, body: bytes) -> None:
    server.answers["/usage"] = reply(400, body)

    with pytest.raises(UsageRefusedError, match="without saying why"):
        client(server).send_usage(b"x")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (status(404), UsageUnknownError),
        (status(405), UsageUnknownError),
        (status(401), AuthError),
        (status(503, Retry_After="30"), FetchError),
        (status(302, Location="http://elsewhere.example/"), FetchError),
        (endless(), FetchError),
    ],
    ids=["404", "405", "401", "503", "302", "endless"],
)
def test_batch_stays_where_the_service_did_not_take_it(
    server: Service, spool: Spool, answer: Answer, error: type[Exception]
) -> None:
    server.answers["/usage"] = answer
    before = spool.closed()

    with pytest.raises(error) as failed:
        send_oldest(spool, client(server).send_usage)

    assert spool.closed() == before
    if "503" in str(failed.value):
        assert isinstance(failed.value, FetchError)
        assert failed.value.retry_after_s == 30


def test_folder_without_a_batch_asks_nobody(server: Service, tmp_path: Path) -> None:
    assert send_oldest(Spool(tmp_path / "none"), client(server).send_usage).name is None
    assert server.asked("/usage") == []
