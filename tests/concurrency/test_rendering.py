"""A tarball that is rendered while people save holds the limits of its own version, not those of the next one."""

from __future__ import annotations

import io
import json
import tarfile
import threading
from typing import Any

import pytest
from django.db import connection

import config_tar
from scionlab.accounts.models import User
from scionlab.delivery import render
from scionlab.limits.update import link_set_bandwidth
from scionlab.testbed.models import Host, Link
from tests.factories import AttachmentPointFactory, UserFactory, attach, spec

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner() -> User:
    return UserFactory(email="owner@example.org")


@pytest.fixture
def link(owner: User) -> Link:
    attach(owner, spec(AttachmentPointFactory()))
    return Link.objects.get()


def version_and_limit(content: bytes) -> tuple[int, int]:
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as tar:
        documents = [one for one in tar.getmembers() if one.name.endswith(".json")]
        files = {one.name: json.loads(tar.extractfile(one).read()) for one in documents}  # type: ignore[union-attr]
    return files["scionlab-config.json"]["limits_version"], files["etc/scion/link_info.json"]["1"]["Bandwidth"]


def render_while_somebody_saves(link: Link, owner: User, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """L and limit of a tarball between whose two reads (the host, its Links) a save of 500 kbit/s tries to commit."""
    done = threading.Event()

    def save() -> None:
        try:
            link_set_bandwidth(link_id=link.pk, bandwidth_kbit=500, actor=owner)
        finally:
            connection.close()
            done.set()

    saver = threading.Thread(target=save)
    original = config_tar.host_members

    def build_after_the_save_tried(host: Any, **options: Any) -> dict[str, bytes]:
        saver.start()
        done.wait(0.5)  # with the lock the save cannot finish before us, however long we wait
        return original(host, **options)

    monkeypatch.setattr(config_tar, "host_members", build_after_the_save_tried)
    rendered = render.config_for(Host.objects.get(pk=link.interface_a.host_id))
    saver.join(10)
    assert done.is_set()
    return version_and_limit(rendered.content)


def test_with_the_lock_it_holds_its_own(link: Link, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    host_id = link.interface_a.host_id
    version = Host.objects.get(pk=host_id).limits_version
    with monkeypatch.context() as patched:
        assert render_while_somebody_saves(link, owner, patched) == (version, 1000)
    assert version_and_limit(render.config_for(Host.objects.get(pk=host_id)).content) == (version + 1, 500)
