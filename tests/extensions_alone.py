"""`python -m tests.extensions_alone FILE`: migrate an empty database with the extensions of SCIONLAB_EXTENSIONS, make
two Links, show pages, and write to FILE (JSON) their texts, the status of each and of each page of ours that they link
to, and the report of an import."""

from __future__ import annotations

import json
import re
import sys
from html import unescape
from pathlib import Path

import django
from django.core.management import call_command
from django.test import Client
from django.urls import NoReverseMatch, reverse

django.setup()


def main() -> None:
    call_command("check")
    call_command("migrate", verbosity=0)
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    Path(sys.argv[1]).write_text(json.dumps(_pages()))


def _pages() -> dict[str, object]:
    # Models can be imported when the apps are ready.
    from scionlab.testbed.models import Link  # noqa: PLC0415
    from tests.factories import AttachmentPointFactory, UserFactory, attach, spec  # noqa: PLC0415
    from tests.upstream_dump import small  # noqa: PLC0415

    person = UserFactory(email="owner@example.org", is_staff=True, is_superuser=True)
    first, second = AttachmentPointFactory(), AttachmentPointFactory()
    user_as = attach(person, spec(first), spec(second, public_port=50_001))
    link = Link.objects.filter(interface_b__AS=user_as.pk).earliest("pk")
    strange, own = Client(raise_request_exception=False), Client(raise_request_exception=False)
    own.force_login(person)
    dump = small()
    dump.add("trc", isd=1, base_version=1, serial_version=1, trc="not one")
    statuses = {path: strange.get(path).status_code for path in ("/", "/login/")}
    texts: dict[str, str] = {}
    for path in [
        "/ases/",
        f"/ases/{user_as.pk}/",
        f"/ases/{user_as.pk}/links/{link.pk}/",
        f"/ases/{user_as.pk}/links/{link.pk}/history/",
        "/cockpit/",
        f"/cockpit/aps/{first.pk}/",
        "/api/v1/schema/",
        f"/api/v1/links/{link.pk}/",
        *_of_extensions(user_as.pk, link.pk),
    ]:
        answer = own.get(path)
        statuses[path], texts[path] = answer.status_code, answer.content.decode()
    linked = {unescape(one) for text in texts.values() for one in re.findall(r'(?:href|data-live)="(/[^"#]*)', text)}
    for path in sorted(linked - statuses.keys()):
        if not path.startswith(("/static/", "/admin/")):
            statuses[path] = own.get(path, follow=True).status_code
    return {"statuses": statuses, "texts": texts, "report": _import(dump.content())}


def _of_extensions(as_id: int, link_id: int) -> list[str]:
    found = []
    for name, args in [
        ("paths", []),
        ("user_as_paths", [as_id]),
        ("api_as_paths", [as_id]),
        ("link_why", [as_id, link_id]),
        ("watch_new", [as_id, link_id]),
        ("joint_test_new", [as_id]),
        ("api_as_tests", [as_id]),
        ("api_link_tests", [link_id]),
        ("cockpit_traffic", []),
        ("api_link_usage", [link_id]),
        ("api_traffic", []),
    ]:
        try:
            found.append(reverse(name, args=args))
        except NoReverseMatch:
            continue  # of an extension that is not installed
    return found


def _import(content: bytes) -> list[str]:
    """Lines of a dry run's report."""
    from django.apps import apps  # noqa: PLC0415

    if not apps.is_installed("scionlab.importer"):
        return []
    from scionlab.importer.importer import import_scionlab  # noqa: PLC0415
    from scionlab.importer.network import read_network  # noqa: PLC0415

    return list(import_scionlab(network=read_network(content), kbit=500, skip_invalid=True, dry_run=True).lines())


if __name__ == "__main__":
    main()
