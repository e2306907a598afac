"""The curl lines of the pages about the API, run as they stand there against the real service."""

from __future__ import annotations

import html
import os
import re
import subprocess

import pytest
from django.core.cache import cache
from django.test import Client
from rest_framework.throttling import SimpleRateThrottle

from scionlab.links.bulk import bulk_apply, bulk_preview
from scionlab.links.bulk_plan import Operation
from scionlab.links.profiles import outage
from scionlab.links.timed_limit import timed_limit_create
from scionlab.models import AttachmentPoint, Link, TimedLimit, User
from scionlab.people.api_token import api_token_create
from scionlab.platform.etags import etag_of
from scionlab.rest.bulk_documents import bulk_document
from tests.factories import PASSWORD, attach, spec
from tests.web.polling import WebServer

pytestmark = pytest.mark.django_db(transaction=True)


def lines_of(slug: str) -> list[str]:
    page = Client().get(f"/api/docs/{slug}/").content.decode()
    found = [html.unescape(one) for one in re.findall(r"<code>(curl .*?)</code>", page, flags=re.DOTALL)]
    assert found
    return found


@pytest.mark.parametrize("slug", ["ases", "links", "timed-limits", "attachment-points", "bulk-changes", "account"])
def test_curl_lines_work_as_they_stand(
    slug: str,
    server: WebServer,
    link: Link,
    staff: User,
    ap_b: AttachmentPoint,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: object,
) -> None:
    cache.clear()
    monkeypatch.setitem(SimpleRateThrottle.THROTTLE_RATES, "token", "100/min")
    you = User.objects.create_user("you@example.org", PASSWORD)
    assert you.email == "you@example.org", "as it stands there"
    shown = {'"attachment_point_id": 1': _ap(link), '"attachment_point_id": 2': ap_b.pk, '"link_id": 7': link.pk}
    shown['"link_ids": [7, 8, 9]'] = link.pk
    for number, as_shown in enumerate(lines_of(slug)):
        line = as_shown.replace("198.51.100.30", f"198.51.100.{100 + number}")  # the first one has it by then
        line = _with_ids(line, shown)
        TimedLimit.objects.all().delete()
        timed = _timed(link) if "$TIMED" in line else 0
        token_id = api_token_create(user_id=staff.pk, name="another", replaces=True).token.pk
        mine = api_token_create(user_id=staff.pk, name="mine", replaces=True).text
        if "-X DELETE" in line and "$AS" in line:
            doomed = attach(staff, spec(ap_b, public_ip="198.51.100.77")).pk
        else:
            doomed = link.interface_b.AS_id
        variables = {
            "SITE": f"http://127.0.0.1:{server.port}",
            "TOKEN": mine,
            "AS": str(doomed),
            "LINK": str(link.pk),
            "TIMED": str(timed),
            "AP": str(_ap(link)),
            "TOKEN_ID": str(token_id),
            **_bulk_change(link, staff, line=line),
        }
        command = line.replace("curl -s", "curl -w '%{http_code}' -s", 1)
        done = subprocess.run(
            ["sh", "-c", command],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=str(tmp_path),
        )
        assert done.stdout[-3:] in {"200", "201", "204"}, (line, done.stdout[-500:], done.stderr)
        link = Link.objects.get(pk=link.pk)


def _with_ids(line: str, shown: dict[str, int]) -> str:
    """In one pass: the id that was put in for one may look like the next one."""
    names = "|".join(map(re.escape, shown))
    return re.sub(rf"({names})(?![0-9])", lambda found: _with_id(found[1], shown[found[1]]), line)


def _with_id(name: str, value: int) -> str:
    return re.sub(r"[0-9].*[0-9]|[0-9]", str(value), name)


def _bulk_change(link: Link, staff: User, *, line: str) -> dict[str, str]:
    if "default-changes" in line:
        once, twice = Operation("set", 321), Operation("site")
        operation = once if AttachmentPoint.objects.get(pk=_ap(link)).default_bandwidth_kbit is None else twice
        change = bulk_preview(about="defaults", keys=[_ap(link)], operation=operation, chosen="one", actor=staff)
    else:
        change = bulk_preview(
            about="links", keys=[link.pk], operation=Operation("scale", 50), chosen="one", actor=staff
        )
    if "put-back" in line:
        bulk_apply(bulk_id=change.pk, actor=staff, reason="x")
    return {"CHANGE": str(change.pk), "ETAG": etag_of(bulk_document(change))}


def _ap(link: Link) -> int:
    return int(link.interface_a.AS.attachment_point.pk)


def _timed(link: Link) -> int:
    return int(timed_limit_create(link_id=link.pk, profile=outage(3600), begins_at=None, actor=None).pk)
