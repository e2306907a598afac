"""For `manage.py collectstatic` while the image is built: production's names of static files, and no secret."""

from scionlab.settings.base import *  # noqa: F403  settings are layered by design

SECRET_KEY = "collects-files-and-signs-nothing"  # noqa: S105  signs nothing
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
