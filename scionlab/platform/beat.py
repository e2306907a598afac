"""Celery's beat, with a sign of life that it writes itself (docker-compose.yml looks how old it is)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from celery.beat import PersistentScheduler
from django.conf import settings


class Scheduler(PersistentScheduler):
    """Touches `BEAT_HEARTBEAT` after each turn of the loop, at least every `CELERY_BEAT_MAX_LOOP_INTERVAL` seconds."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        wait_s: float = super().tick(*args, **kwargs)
        with suppress(OSError):  # a full disk must not end it: what it queues is for elsewhere
            Path(settings.BEAT_HEARTBEAT).touch()
        return wait_s
