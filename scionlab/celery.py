"""The Celery application; its settings are the `CELERY_*` ones of Django's settings. Tasks are in `scionlab.tasks`."""

import logging.config
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from django.conf import settings
from kombu.transport.redis import QoS

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")

app = Celery("scionlab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["scionlab"])

# A worker that loses Redis would put the messages back that it has not acknowledged, over the connection that it just
# lost, and die of that (kombu 5.7, `AttributeError` in `restore_unacked`). What was lost is found by tasks.sweep.
QoS.restore_at_shutdown = False


@setup_logging.connect
def _log_as_django_does(**_: Any) -> None:
    """Celery's own lines would have neither ids nor the care of `log_lines`."""
    logging.config.dictConfig(settings.LOGGING)
