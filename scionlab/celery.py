"""The Celery application; its settings are the `CELERY_*` ones of Django's settings. Tasks are in `scionlab.tasks`."""

import os

from celery import Celery
from kombu.transport.redis import QoS

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")

app = Celery("scionlab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["scionlab"])

# A worker that loses Redis would put the messages back that it has not acknowledged, over the connection that it just
# lost, and die of that (kombu 5.7, `AttributeError` in `restore_unacked`). What was lost is found by tasks.sweep.
QoS.restore_at_shutdown = False
