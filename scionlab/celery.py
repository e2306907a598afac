"""The Celery application; its settings are Django's `CELERY_*`. Each app has its tasks in its
module `tasks`."""

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
app.autodiscover_tasks()

# When a worker loses Redis, it would return unacknowledged messages over the lost connection and crash (kombu 5.7,
# `AttributeError` in `restore_unacked`). tasks.sweep finds the lost work.
QoS.restore_at_shutdown = False


class _WholeFiles(filesystem.Channel):
    """File transport for messages without Redis. kombu 5.7 creates the file before it writes it: a worker that reads it
    in between crashes."""

    def _put(self, queue: str, payload: dict[str, Any], **_: Any) -> None:  # type: ignore[override]  # as kombu's
        name = f"{round(time.monotonic() * 1000)}_{uuid.uuid4()}.{queue}.msg"  # kombu's names: oldest first
        hidden = Path(self.data_folder_out, f".{name}")
        hidden.write_text(dumps(payload))
        hidden.replace(Path(self.data_folder_out, name))


filesystem.Transport.Channel = _WholeFiles


@setup_logging.connect
def _log_as_django_does(**_: Any) -> None:
    """Use the project's logging: Celery's would lack ids and the escaping of `log_lines`."""
    logging.config.dictConfig(settings.LOGGING)
