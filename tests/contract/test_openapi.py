"""The REST API against its own description: what it says is what is answered, whatever is sent (schemathesis).

Every case starts from the same world, and is undone. SLBW_OPENAPI_EXAMPLES=300 looks further than CI has time for,
SLBW_OPENAPI_SEED=7 elsewhere.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.core.cache import cache
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import Client
from hypothesis import HealthCheck, Phase, seed, settings
from jsonschema import Draft202012Validator
from pytest_django.plugin import DjangoDbBlocker
from rest_framework.throttling import SimpleRateThrottle
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi.checks import positive_data_acceptance

from scionlab.site.api_docs import description
from scionlab.site.api_examples import ERRORS
from tests.factories import api_token
from tests.support.access import World, addresses, basic, build_world
from tests.support.polling import AGENT

pytestmark = pytest.mark.django_db

EXAMPLES = int(os.environ.get("SLBW_OPENAPI_EXAMPLES", "4"))
SEED = int(os.environ.get("SLBW_OPENAPI_SEED", "1"))

described = schemathesis.openapi.from_dict(description())
_site = get_wsgi_application()


def site(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Close the response, as servers do and Schemathesis does not: only then a request is finished, and its id is not
    that of what the next tests log."""
    response = _site(environ, start_response)
    try:
        return [b"".join(response)]
    finally:
        response.close()


described.app = site


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Built once, and undone at the end."""
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch, transaction.atomic():
        cache.clear()
        for scope in SimpleRateThrottle.THROTTLE_RATES:
            patch.setitem(SimpleRateThrottle.THROTTLE_RATES, scope, "1000000/min")
        # A request that begins or ends would close the connection of this very transaction. To disconnect the signals
        # is not enough: Django's test client connects them again after each of its own requests.
        patch.setattr(BaseDatabaseWrapper, "close_if_unusable_or_obsolete", lambda _connection: None)
        built = build_world()
        yield built
        transaction.set_rollback(True)


@pytest.fixture(scope="module")
def tokens(world: World) -> dict[str, str]:
    people = {"owner": world.owner, "administrator": world.administrator}
    return {name: f"Token {api_token(person)}" for name, person in people.items()}


FOR_ADMINISTRATORS = tuple(f"/api/v1/{what}/" for what in ("policy", "traffic", "attachment-points"))


def authorization(case: schemathesis.Case, world: World, tokens: dict[str, str]) -> dict[str, str]:
    if case.path.startswith("/api/v4/host/"):
        return {"Authorization": basic(world.ap_host, world.ap_host.secret)} | AGENT
    if case.path in {"/api/v4/enrol"} or (case.path == "/api/v1/token/" and case.method == "POST"):
        return {}
    return {"Authorization": tokens["administrator" if case.path.startswith(FOR_ADMINISTRATORS) else "owner"]}


COVERAGE_CASES = 25  # of one operation, of up to 300: the first ones are the bounds of its own fields
_seen: Counter[str] = Counter()


def is_one_too_many(case: schemathesis.Case) -> bool:
    """Without SLBW_OPENAPI_EXAMPLES only so many of the cases that are derived from bounds are tried."""
    if case.meta is None or case.meta.phase.name != TestPhase.COVERAGE or "SLBW_OPENAPI_EXAMPLES" in os.environ:
        return False
    _seen[case.operation.label] += 1
    return _seen[case.operation.label] > COVERAGE_CASES


def aim(case: schemathesis.Case, world: World) -> None:
    """Half of the numbers that could be an id are that of something that is there."""
    for name, value in (case.path_parameters or {}).items():
        there = {
            "/api/v1/ases/": world.user_as.pk,
            "/api/v1/links/": world.link.pk,
            "/api/v1/timed-limits/": world.objects["timedlimit"].pk,
            "/api/v1/joint-tests/": world.objects["jointtest"].pk,
            "/api/v1/tests/": world.objects["linktest"].pk,
            "/api/v1/attachment-points/": world.objects["attachmentpoint"].pk,
            "/api/v1/tokens/": world.objects["apitoken"].pk,
        }
        if name == "uid" and isinstance(value, str) and re.fullmatch("[0-9A-Za-z_-]{1,32}", value):
            case.path_parameters[name] = world.ap_host.uid
        elif isinstance(value, int) and value > 0 and value % 2:
            case.path_parameters[name] = next(pk for start, pk in there.items() if case.path.startswith(start))


@seed(SEED)
@settings(
    max_examples=EXAMPLES,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@described.parametrize()
def test_answers_are_as_described(case: schemathesis.Case, world: World, tokens: dict[str, str]) -> None:
    """No 5xx; status, headers and body as the description says; what it forbids is refused; nobody gets in unknown."""
    if is_one_too_many(case):
        return
    aim(case, world)
    with transaction.atomic():
        # A rule of the domain may refuse what the description allows (a bandwidth above the maximum).
        case.call_and_validate(headers=authorization(case, world, tokens), excluded_checks=[positive_data_acceptance])
        transaction.set_rollback(True)


# --- the description itself -----------------------------------------------------------------------------------


def test_description_has_no_gaps() -> None:
    out = StringIO()
    call_command("spectacular", "--validate", "--fail-on-warn", stdout=out)
    assert out.getvalue().startswith("openapi: 3.1.0\n")


def test_every_address_of_the_api_is_described() -> None:
    undescribed = {"api_schema", "api_docs", "api_operations", "api/^(?:v[23]/)?host(?:/(?P<rest>.*))?$"}
    served = {
        "/" + re.sub(r"<(?:key|str):(\w+)>", lambda name: "{id}" if name[1] == "pk" else f"{{{name[1]}}}", route)
        for route, name in addresses()
        if route.startswith("api/") and name not in undescribed
    }
    assert served == set(description()["paths"])


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in description()["paths"].items():
        for method, operation in methods.items():
            yield f"{method} {path}", operation


def test_every_operation_says_what_it_needs_and_how_it_fails() -> None:
    for name, operation in operations():
        assert operation["summary"], name
        assert {"500", "503"} <= set(operation["responses"]), name
        assert "401" in operation["responses"] or operation.get("security") == [], name
        if "requestBody" in operation:
            content = next(iter(operation["requestBody"]["content"].values()))
            assert "example" in content or "examples" in content, name
    ids = [operation["operationId"] for _, operation in operations()]
    assert len(ids) == len(set(ids))


def test_examples_are_what_they_are_examples_of() -> None:
    root = {"components": description()["components"]}
    count = 0
    for name, operation in operations():
        parts = [*operation["responses"].values(), operation.get("requestBody", {})]
        for content in (one for part in parts for one in part.get("content", {}).values()):
            shown = [one["value"] for one in content.get("examples", {}).values()]
            shown += [content["example"]] if "example" in content else []
            for example in shown:
                count += 1
                errors = list(Draft202012Validator({**content["schema"], **root}).iter_errors(example))
                assert not errors, (name, errors[0].message)
    assert count > 25


def test_the_guide_shows_the_error_that_the_service_says() -> None:
    """In the guide `...` stands for the rest, and a plain space for a no-break one."""
    guide = (Path(__file__).resolve().parents[2] / "docs/api.md").read_text(encoding="utf-8")
    shown = json.loads(guide.partition("```json\n")[2].partition("```")[0])
    said = json.loads(json.dumps(ERRORS[400][1], ensure_ascii=False).replace("\N{NO-BREAK SPACE}", " "))
    (shown_field,), (said_field,) = shown["fields"]["bandwidth_kbit"], said["fields"]["bandwidth_kbit"]
    for one, other in ((shown, said), (shown_field, said_field)):
        assert other["code"] == one["code"] == "bandwidth_too_high"
        assert other["message"].startswith(one["message"].removesuffix("..."))


# --- the pages for people -------------------------------------------------------------------------------------


def test_schema_is_served_and_known_by_its_tag(client: Client) -> None:
    response = client.get("/api/v1/schema/")
    assert response["Content-Type"] == "application/vnd.oai.openapi+json"
    assert response.json()["openapi"] == "3.1.0"
    assert client.get("/api/v1/schema/", headers={"If-None-Match": response["ETag"]}).status_code == 304
