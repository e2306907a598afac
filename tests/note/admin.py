from django.contrib import admin

from tests.note.models import Note

admin.site.register(Note)
