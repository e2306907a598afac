"""Counters and histograms, named by Prometheus' conventions: base units, `_total`."""

from __future__ import annotations

from typing import Final

from django.conf import settings
from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from scionlab.platform.metrics.shared import REGISTRY, share

share(settings.METRICS_DIR)  # before the first of them is created
disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no types; files have none of these metrics

REQUESTS: Final = Histogram(
    "scionlab_http_request_seconds",
    "Time in Django, without waiting for a thread.",
    ["view"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    registry=REGISTRY,
)
ANSWERS: Final = Counter(
    "scionlab_http_requests",
    "Requests answered by Django, by view.",
    ["view", "method", "status"],
    registry=REGISTRY,
)
POLLS: Final = Counter(
    "scionlab_polls",
    "Polls of hosts: not_modified (304), delivered (answered by Django), sent_away (503).",
    ["answer"],
    registry=REGISTRY,
)
WAITING: Final = Gauge(
    "scionlab_polls_waiting",
    "Waiting long polls, in all web processes.",
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
WAKES: Final = Histogram(
    "scionlab_poll_wake_seconds",
    "Time from finding a waiting poll outdated until its response is ready.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    registry=REGISTRY,
)
PROCESSES: Final = Gauge(
    "scionlab_processes",
    "Running processes of the web tier, workers (without their children) and beats.",
    ["part"],
    multiprocess_mode="livesum",
    registry=REGISTRY,
)
RENDERS: Final = Counter(
    "scionlab_configurations",
    "Requested configurations: rendered, or found in the cache.",
    ["result"],
    registry=REGISTRY,
)
RECEIPTS: Final = Counter(
    "scionlab_receipts",
    "Receipts of agents: stored, or older than the newest one.",
    ["result"],
    registry=REGISTRY,
)
SAVE_TO_KERNEL: Final = Histogram(
    "scionlab_save_to_kernel_seconds",
    "Time from a change of a Link until the first receipt that confirms it in the kernel.",
    buckets=(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
    registry=REGISTRY,
)
TASKS: Final = Counter("scionlab_tasks", "Finished Celery tasks, by result.", ["task", "state"], registry=REGISTRY)
TASK_TIME: Final = Counter("scionlab_task_seconds", "Duration of Celery tasks.", ["task"], registry=REGISTRY)
TASK_DONE_AT: Final = Gauge(
    "scionlab_task_last_success_timestamp_seconds",
    "Time of the last success of a task; that of sweep must be recent.",
    ["task"],
    multiprocess_mode="mostrecent",
    registry=REGISTRY,
)
