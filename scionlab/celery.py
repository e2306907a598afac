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
from kombu.transport import filesystem, redis, virtual
from kombu.utils.json import dumps

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scionlab.settings.dev")

app = Celery("scionlab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


class _HeldMessages(redis.QoS):
    """Two faults of kombu 5.7. A worker that loses Redis would return unacknowledged messages over the lost connection
    and crash (`AttributeError` in `restore_unacked`); tasks.sweep finds the lost work. And a message whose
    acknowledgement Redis does not answer would be counted as held for good: with as many as a worker may hold, it takes
    none any more. Redis gives such a message out again after its visibility timeout; to do a task twice is harmless."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        try:
            super().ack(delivery_tag)
        finally:
            virtual.QoS.ack(self, delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        try:
            super().reject(delivery_tag, requeue)
        finally:
            virtual.QoS.ack(self, delivery_tag)


redis.Channel.QoS = _HeldMessages


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
