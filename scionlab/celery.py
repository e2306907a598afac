"""The Celery application; its settings are the `CELERY_*` ones of Django's settings. Tasks are in `scionlab.tasks`."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")

app = Celery("scionlab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["scionlab"])
