"""The Celery application; its settings are the `CELERY_*` ones of Django's settings. Tasks are in `scionlab.tasks`."""

import logging.config
import os
import time
import uuid
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from django.conf import settings
from kombu.transport import filesystem
from kombu.transport.redis import QoS
from kombu.utils.json import dumps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")

app = Celery("scionlab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["scionlab"])

# A worker that loses Redis would put the messages back that it has not acknowledged, over the connection that it just
# lost, and die of that (kombu 5.7, `AttributeError` in `restore_unacked`). What was lost is found by tasks.sweep.
QoS.restore_at_shutdown = False


class _WholeFiles(filesystem.Channel):
    """Without Redis each message is a file. kombu 5.7 makes it empty and then writes it: a worker that takes it in
    between cannot read it, and ends."""

    def _put(self, queue: str, payload: dict[str, Any], **_: Any) -> None:  # type: ignore[override]  # as kombu's
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"  # kombu's names: oldest first
        hidden = Path(self.data_folder_out, f".{name}")
        hidden.write_text(dumps(payload))
        hidden.replace(Path(self.data_folder_out, name))


filesystem.Transport.Channel = _WholeFiles


@setup_logging.connect
def _log_as_django_does(**_: Any) -> None:
    """Celery's own lines would have neither ids nor the care of `log_lines`."""
    logging.config.dictConfig(settings.LOGGING)
