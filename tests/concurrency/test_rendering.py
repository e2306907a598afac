"""A tarball that is rendered while people save holds the limits of its own version, not those of the next one."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from typing import Any

import pytest

import config_tar
from scionlab.accounts.models import User
from scionlab.delivery import render
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import AttachmentPoint, Host
from scionlab.testbed.selectors import links_of
from tests.concurrency.conftest import AtOnce, failures
from tests.factories import attach, spec


def version_and_limit(content: bytes) -> tuple[int, int]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        documents = [one for one in tar.getmembers() if one.name.endswith(".json")]
        files = {one.name: json.loads(tar.extractfile(one).read()) for one in documents}  # type: ignore[union-attr]
    return files["scionlab-config.json"]["limits_version"], files["etc/scion/link_info.json"]["1"]["Bandwidth"]


def test_a_save_between_its_two_reads_is_not_in_it(
    owner: User, ap_b: AttachmentPoint, at_once: AtOnce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host is read, then its Links; a save of 500 kbit/s tries to commit between the two."""
    link = links_of(attach(owner, spec(ap_b)))[0]
    version = Host.objects.get(pk=ap_b.host_id).limits_version
    building, saved = threading.Event(), threading.Event()
    original = config_tar.host_members

    def build_after_the_save_tried(host: Any, **options: Any) -> dict[str, bytes]:
        building.set()
        saved.wait(0.5)  # with the lock the save cannot finish before us, however long we wait
        return original(host, **options)

    def save() -> None:
        assert building.wait(30)
        link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
        saved.set()

    def render_now() -> bytes:
        return bytes(render.config_for(Host.objects.get(pk=ap_b.host_id)).content)

    monkeypatch.setattr(config_tar, "host_members", build_after_the_save_tried)
    results = at_once(render_now, save)
    assert failures(results) == []
    assert version_and_limit(results[0]) == (version, 1000)
    assert version_and_limit(render_now()) == (version + 1, 500)
