"""Counters of all processes together.

Each process adds up in memory and hands over every few seconds, in one round trip, to a hash in Redis whose fields are
added to. What cannot be handed over is kept. Without Redis (embedded) each process knows its own counts alone. A
process that is killed loses what it had not handed over; an emptied Redis begins again at 0, as a restart does with
Prometheus' usual clients.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Mapping
from typing import Final

from django.conf import settings
from redis.exceptions import RedisError

from scionlab.platform import redis_client
from scionlab.platform.redis_client import REST

logger = logging.getLogger(__name__)

HAND_OVER_S: Final = 5.0
GONE_AFTER_S: Final = 60.0  # a process that said nothing for so long
_SUMS: Final = "scionlab.metrics.sums"
_NEWEST: Final = "scionlab.metrics.newest"
_PROCESSES: Final = "scionlab.metrics.processes"

Series = tuple[str, ...]  # a name, and the values of its labels
Sums = dict[Series, float]


class Ledger:
    """One process' counts. Safe between threads, and across a fork: a child begins with nothing."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._sums: Sums = {}
        self._newest: Sums = {}
        self._gauges: Sums = {}
        self._handed_over_at = time.monotonic()

    def add(self, series: Series, by: float = 1.0) -> None:
        with self._lock:
            self._sums[series] = self._sums.get(series, 0.0) + by

    def newest(self, series: Series, value: float) -> None:
        """The last value that any process set."""
        with self._lock:
            self._newest[series] = value

    def gauge(self, series: Series, value: float) -> None:
        """This process' value now; those of all living processes are added up."""
        with self._lock:
            self._gauges[series] = value

    def hand_over_if_due(self) -> None:
        if time.monotonic() - self._handed_over_at >= HAND_OVER_S:
            self.hand_over()

    def hand_over(self) -> bool:
        """False where Redis did not take it; then it is kept. Does not try a Redis that just did not answer."""
        if not settings.REDIS_URL:
            return True
        if not REST.is_over:
            return False
        with self._lock:
            self._handed_over_at = time.monotonic()
            sums, self._sums = self._sums, {}
            newest, self._newest = self._newest, {}
            gauges = dict(self._gauges)
        try:
            self._send(sums, newest, gauges)
        except RedisError as exc:
            logger.warning("metrics.kept error=%r", exc)
            with self._lock:
                for series, value in sums.items():
                    self._sums[series] = self._sums.get(series, 0.0) + value
                self._newest = {**newest, **self._newest}
            return False
        return True

    def _send(self, sums: Sums, newest: Sums, gauges: Sums) -> None:
        pipe = redis_client.client().pipeline(transaction=True)  # all or nothing
        for series, value in sums.items():
            pipe.hincrbyfloat(_SUMS, _field(series), value)
        if newest:
            pipe.hset(_NEWEST, mapping={_field(series): value for series, value in newest.items()})
        if gauges:
            said = json.dumps([time.time(), [[list(series), value] for series, value in gauges.items()]])
            pipe.hset(_PROCESSES, f"{socket.gethostname()}:{os.getpid()}", said)
        if sums or newest or gauges:
            pipe.execute()

    def totals(self) -> tuple[Sums, Sums, Sums]:
        """Sums, newest values and gauges of all processes. Raises `RedisError`."""
        if not settings.REDIS_URL:
            with self._lock:
                return dict(self._sums), dict(self._newest), dict(self._gauges)
        pipe = redis_client.client().pipeline(transaction=False)
        for key in (_SUMS, _NEWEST, _PROCESSES):
            pipe.hgetall(key)
        sums, newest, processes = pipe.execute()
        return _read(sums), _read(newest), self._living(processes)

    def _living(self, processes: Mapping[bytes, bytes]) -> Sums:
        gauges: Sums = {}
        gone = []
        for name, said in processes.items():
            at, values = json.loads(said)
            if abs(time.time() - at) > GONE_AFTER_S:
                gone.append(name)
                continue
            for series, value in values:
                gauges[tuple(series)] = gauges.get(tuple(series), 0.0) + value
        if gone:
            redis_client.client().hdel(_PROCESSES, *gone)
        return gauges


def _field(series: Series) -> str:
    return json.dumps(series, separators=(",", ":"))


def _read(found: Mapping[bytes, bytes]) -> Sums:
    return {tuple(json.loads(field)): float(value) for field, value in found.items()}


LEDGER: Final = Ledger()
