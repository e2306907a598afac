"""A path that real SCION printed, on a network whose rows and tarballs are the service's: its page names the link."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client
from django.urls import reverse

from bandwidth_config import Limits
from measuring.iproute import available, cleanup_stale
from measuring.netns import Lab
from scionlab.accounts.models import User
from scionlab.limits.update import link_update
from scionlab.testbed.models import Link
from tests.factories import api_token
from tests.scion.conftest import PREFIX
from tests.scion.service_net import ANNA, AP, BEN, CORE, ServiceNet

pytestmark = [pytest.mark.django_db, pytest.mark.kernel, pytest.mark.timeout(300)]


@pytest.fixture
def net(scion_programs: None, db: None, tmp_path: Path) -> Iterator[ServiceNet]:
    if (reason := available()) is not None:
        pytest.skip(reason)
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
        yield ServiceNet(lab, tmp_path)


def answered(traced: str) -> list[float | None]:
    """The shortest of the times of each line; None for one without an answer."""
    if traced.startswith("{"):
        return [min(one["round_trip_times"] or [], default=None) for one in json.loads(traced)["hops"]]
    lines = [line for line in traced.splitlines() if re.match(r"[0-9]+ ", line)]
    return [min(map(float, re.findall(r" ([0-9.]+)ms", line)), default=None) for line in lines]


def test_paths_that_scion_prints_show_the_limits_of_one_s_own_link(net: ServiceNet) -> None:
    anna = User.objects.get(user_ases=net.anna_as)
    link, theirs = (Link.objects.get(interface_b__AS=one.pk) for one in (net.anna_as, net.ben_as))
    link_update(link_id=link.pk, actor=anna, limits=Limits(700, 300))
    headers = {"Authorization": f"Token {api_token(anna)}"}
    printed = {form: net.anna.scion("showpaths", BEN, "--format", form) for form in ("json", "human")}
    traced = {form: net.anna.scion("traceroute", net.ben.address, "--format", form) for form in ("json", "human")}
    for form, text in printed.items():
        body = json.dumps({"paths": text, "traceroute": traced[form]})
        answer = Client().post("/api/v1/paths/", body, content_type="application/json", headers=headers)
        assert answer.status_code == 200, (text, answer.content)
        [path] = answer.json()["paths"]
        assert path["hops"] == [ANNA, AP, BEN]
        mine, other = path["links"]
        ends = [mine["from_interface_id"], mine["to_interface_id"], other["from_interface_id"]]
        sides = (link.interface_b, link.interface_a, theirs.interface_a)
        assert ends == [side.interface_id for side in sides]
        named = ("kind", "link_id", "direction", "limit_kbit", "state")
        assert [mine[name] for name in named] == ["shown", link.pk, "from_user", 300, "waiting"]
        assert [other[name] for name in named] == ["withheld", None, None, None, None]
        rtts = [one[name] for one in (mine, other) for name in ("from_rtt_ms", "to_rtt_ms")]
        assert rtts == answered(traced[form]), traced[form]
        assert any(rtts), "no interface answered"

    browser = Client()
    browser.force_login(anna)
    back = net.core.scion("showpaths", ANNA, "--format", "human", "--no-probe")
    page = browser.post(reverse("paths"), {"paths": back}).content.decode().replace("\N{NO-BREAK SPACE}", " ")
    assert f"{AP}#{link.interface_a.interface_id} to {ANNA}#{link.interface_b.interface_id}" in page
    assert "700 kbit/s" in page
    assert "300 kbit/s" not in page
    assert CORE in page
