"""Every counter and histogram that is counted as things happen, by Prometheus' conventions: base units, `_total`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from scionlab.platform.metrics.ledger import LEDGER, Sums


@dataclass(frozen=True)
class Counter:
    """`name` without `_total`, which the exposition adds."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def add(self, *values: str, by: float = 1.0) -> None:
        LEDGER.add((self.name, *values), by)

    def family(self, sums: Sums) -> Metric:
        found = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for series, value in _of(self.name, sums):
            found.add_metric(series, value)
        if not self.labels and not found.samples:
            found.add_metric((), 0)
        return found


@dataclass(frozen=True)
class Newest:
    """A value that the last one who knew it has set."""

    name: str
    help: str
    labels: tuple[str, ...] = ()

    def set(self, value: float, *values: str) -> None:
        LEDGER.newest((self.name, *values), value)

    def family(self, sums: Sums) -> Metric:
        found = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for series, value in _of(self.name, sums):
            found.add_metric(series, value)
        return found


@dataclass(frozen=True)
class Gauge:
    """The sum over the living processes."""

    name: str
    help: str

    def set(self, value: float) -> None:
        LEDGER.gauge((self.name,), value)

    def family(self, sums: Sums) -> Metric:
        return GaugeMetricFamily(self.name, self.help, value=sums.get((self.name,), 0.0))


@dataclass(frozen=True)
class Histogram:
    """`bounds_s` are the upper bounds of its buckets [s]; one without a bound follows."""

    name: str
    help: str
    bounds_s: tuple[float, ...]
    labels: tuple[str, ...] = ()

    def observe(self, seconds: float, *values: str) -> None:
        seconds = max(seconds, 0.0)  # clocks step backwards; a sum must not
        LEDGER.add((self.name, *values, str(bisect_left(self.bounds_s, seconds))))
        LEDGER.add((f"{self.name}_sum", *values), seconds)

    def family(self, sums: Sums) -> Metric:
        found = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        counts: dict[tuple[str, ...], dict[int, float]] = {}
        for (*values, bucket), count in _of(self.name, sums):
            counts.setdefault(tuple(values), {})[int(bucket)] = count
        if not self.labels:
            counts.setdefault((), {})
        for labels, buckets in sorted(counts.items()):
            found.add_metric(labels, list(self._cumulated(buckets)), sums.get((f"{self.name}_sum", *labels), 0.0))
        return found

    def _cumulated(self, buckets: Mapping[int, float]) -> Iterable[tuple[str, float]]:
        below = 0.0
        for index, bound in enumerate((*self.bounds_s, float("inf"))):
            below += buckets.get(index, 0.0)
            yield ("+Inf" if index == len(self.bounds_s) else str(bound)), below


def _of(name: str, sums: Sums) -> list[tuple[tuple[str, ...], float]]:
    return sorted((series[1:], value) for series, value in sums.items() if series[0] == name)


REQUESTS: Final = Histogram(
    "scionlab_http_request_seconds",
    "Time in Django, without waiting for a thread.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
    ("view",),
)
ANSWERS: Final = Counter(
    "scionlab_http_requests", "Requests answered by Django, by view.", ("view", "method", "status")
)
POLLS: Final = Counter(
    "scionlab_polls",
    "Polls of hosts: not_modified (304), delivered (answered by Django), sent_away (503).",
    ("answer",),
)
WAITING: Final = Gauge("scionlab_polls_waiting", "Waiting long polls, in all web processes.")
WAKES: Final = Histogram(
    "scionlab_poll_wake_seconds",
    "Time from finding a waiting poll outdated until its response is ready.",
    (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)
RENDERS: Final = Counter(
    "scionlab_configurations",
    "Requested configurations: rendered, or found in the cache.",
    ("result",),
)
RECEIPTS: Final = Counter("scionlab_receipts", "Receipts of agents: stored, or older than the newest one.", ("result",))
SAVE_TO_KERNEL: Final = Histogram(
    "scionlab_save_to_kernel_seconds",
    "Time from a change of a Link until the first receipt that confirms it in the kernel.",
    (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
TASKS: Final = Counter("scionlab_tasks", "Finished Celery tasks, by result.", ("task", "state"))
TASK_TIME: Final = Counter("scionlab_task_seconds", "Duration of Celery tasks.", ("task",))
TASK_DONE_AT: Final = Newest(
    "scionlab_task_last_success_timestamp_seconds",
    "Time of the last success of a task; that of sweep must be recent.",
    ("task",),
)

SUMMED: Final = (REQUESTS, ANSWERS, POLLS, WAKES, RENDERS, RECEIPTS, SAVE_TO_KERNEL, TASKS, TASK_TIME)
LAST: Final = (TASK_DONE_AT,)
LIVING: Final = (WAITING,)
