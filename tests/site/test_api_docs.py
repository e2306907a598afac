"""The requests of the description of the API, sent as they stand there to the real service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.cache import cache
from django.db import transaction
from django.test import Client

from scionlab.accounts.api_token import api_token_create
from scionlab.accounts.models import User
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.link_test import link_test_create
from scionlab.linktests.models import LinkTest
from scionlab.site.api_docs import description
from scionlab.testbed.models import AttachmentPoint, Link, UserAS
from tests.factories import PASSWORD, spec
from tests.joint_world import enforced

pytestmark = pytest.mark.django_db


def examples() -> Iterator[tuple[str, str, str, str]]:
    """Method, path, body and name of each example of a request."""
    for path, operations in description()["paths"].items():
        for method, operation in operations.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            for name, example in content.get("examples", {}).items():
                if path.startswith("/api/v1/"):
                    yield method, path, json.dumps(example["value"]), name


def test_requests_work_as_they_stand_in_the_description(
    link: Link, staff: User, ap_b: AttachmentPoint, receipt: HostReceipt
) -> None:
    """Of an administrator, who owns the AS: only an owner sends over a link."""
    UserAS.objects.filter(pk=link.interface_b.AS_id).update(owner=staff)
    HostReceipt.objects.filter(pk=receipt.pk).update(says_tests=True, sending_tests="on")
    User.objects.create_user("you@example.org", PASSWORD)  # as it stands there
    found = list(examples())
    assert len(found) > 20
    for example in found:
        with transaction.atomic():
            answer = send(*example[:3], link, staff, ap_b)
            assert answer.status_code in {200, 201, 204}, (example, answer.content)
            transaction.set_rollback(True)


def send(method: str, path: str, body: str, link: Link, staff: User, ap_b: AttachmentPoint) -> Any:
    cache.clear()
    shown = {'"attachment_point_id": 1': _ap(link), '"attachment_point_id": 2': ap_b.pk, '"link_id": 7': link.pk}
    ids = {
        "/api/v1/ases/": link.interface_b.AS_id,
        "/api/v1/links/": link.pk,
        "/api/v1/attachment-points/": _ap(link),
    }
    headers = {"Authorization": f"Token {api_token_create(user_id=staff.pk, name='mine', replaces=True).text}"}
    key = next((pk for start, pk in ids.items() if path.startswith(start)), 0)
    if path == "/api/v1/ases/{id}/tests/":
        key = _with_two_links(link, staff, ap_b)
    if path.startswith("/api/v1/tests/"):
        key = _begun_test(link, staff)
    return Client().generic(
        method.upper(),
        path.replace("{id}", str(key)),
        _with_ids(body, shown),
        content_type="application/json",
        headers=headers,
    )


def _with_ids(line: str, shown: dict[str, int]) -> str:
    """In one pass: the id that was put in for one may look like the next one."""
    names = "|".join(map(re.escape, shown))
    return re.sub(rf"({names})(?![0-9])", lambda found: _with_id(found[1], shown[found[1]]), line)


def _with_id(name: str, value: int) -> str:
    return re.sub(r"[0-9].*[0-9]|[0-9]", str(value), name)


def _with_two_links(link: Link, staff: User, ap_b: AttachmentPoint) -> int:
    near = spec(AttachmentPoint.objects.get(pk=_ap(link)), public_ip="198.51.100.40")
    return int(enforced(staff, near, spec(ap_b, public_ip="198.51.100.40", public_port=50_001)).pk)


def _begun_test(link: Link, staff: User) -> int:
    made = link_test_create(link_id=link.pk, tool="quick", begins_at=None, actor=staff)
    LinkTest.objects.filter(pk=made.pk).update(begins_at=made.created_at)
    return int(made.pk)


def _ap(link: Link) -> int:
    return int(link.interface_a.AS.attachment_point.pk)
