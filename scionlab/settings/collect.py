"""For `manage.py collectstatic` during the build of the image: production's file names, without secrets."""

from scionlab.settings.base import *  # noqa: F403  settings are layered by design

SECRET_KEY = "collects-files-and-signs-nothing"  # noqa: S105  signs nothing
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}
