from django.apps import AppConfig


class NoteConfig(AppConfig):
    name = "tests.note"

    def ready(self) -> None:
        from rest_framework import serializers

        from scionlab.limits.pages.panels import LINK_PANELS, LinkPanel
        from scionlab.user_ases.rest.documents import LINK_FIELDS, LinkField
        from tests.note.models import Note

        def notes_of(links):
            return dict(Note.objects.filter(link__in=links).values_list("link", "text"))

        def panel(page):
            return {"note": note} if (note := notes_of([page.link]).get(page.link.pk)) else None

        LINK_PANELS.append(LinkPanel("note/panel.html", panel))
        LINK_FIELDS.append(LinkField("note", lambda: serializers.CharField(allow_null=True), notes_of))
