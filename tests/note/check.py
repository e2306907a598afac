"""What the app adds; tests/site/test_note.py runs it with its settings."""

from __future__ import annotations

import json

import pytest
from django.test import Client

from scionlab.testbed.models import Link
from tests.factories import AttachmentPointFactory, UserFactory, attach, spec

TEXT = "Shared with the course <b>until</b> March."


@pytest.mark.django_db
def test_a_note_goes_from_django_admin_to_the_page_and_rest() -> None:
    owner, admin = UserFactory(), UserFactory(is_staff=True, is_superuser=True)
    user_as = attach(owner, spec(AttachmentPointFactory()))
    link = Link.objects.get(interface_b__AS=user_as.pk)
    theirs, administrators = Client(), Client()
    theirs.force_login(owner)
    administrators.force_login(admin)
    page = f"/ases/{user_as.pk}/links/{link.pk}/"
    assert "<h2>Note</h2>" not in theirs.get(page).content.decode()
    assert json.loads(theirs.get(f"/api/v1/links/{link.pk}/").content)["note"] is None

    said = administrators.post("/admin/note/note/add/", {"link": link.pk, "text": TEXT})
    assert said.status_code == 302
    assert (
        "<h2>Note</h2><p>Shared with the course &lt;b&gt;until&lt;/b&gt; March.</p>"
        in theirs.get(page).content.decode()
    )
    assert json.loads(theirs.get(f"/api/v1/links/{link.pk}/").content)["note"] == TEXT
    (listed,) = json.loads(theirs.get("/api/v1/links/").content)["results"]
    (of_as,) = json.loads(theirs.get(f"/api/v1/ases/{user_as.pk}/").content)["links"]
    assert (listed["note"], of_as["note"]) == (TEXT, TEXT)
