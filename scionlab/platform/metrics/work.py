"""Counts tasks and processes of Celery's workers."""

from __future__ import annotations

import time
from typing import Any

from celery import signals

from scionlab.platform.metrics.names import PROCESSES, TASK_DONE_AT, TASK_TIME, TASKS

_began: dict[str, float] = {}


def connect() -> None:
    """Call at the start of every process; the signals are only sent where tasks run."""
    signals.task_prerun.connect(_begin, dispatch_uid="scionlab.metrics")
    signals.task_postrun.connect(_end, dispatch_uid="scionlab.metrics")
    signals.worker_ready.connect(_worker_runs, dispatch_uid="scionlab.metrics")
    signals.beat_init.connect(_beat_runs, dispatch_uid="scionlab.metrics")


def _worker_runs(**_: Any) -> None:
    PROCESSES.labels("worker").set(1)


def _beat_runs(**_: Any) -> None:
    PROCESSES.labels("beat").set(1)


def _begin(task_id: str, **_: Any) -> None:
    _began[task_id] = time.perf_counter()


def _end(task_id: str, task: Any, state: str | None = None, **_: Any) -> None:
    name = task.name.rpartition(".")[2]
    TASKS.labels(name, (state or "unknown").lower()).inc()
    TASK_TIME.labels(name).inc(time.perf_counter() - _began.pop(task_id, time.perf_counter()))
    if state == "SUCCESS":
        TASK_DONE_AT.labels(name).set_to_current_time()
