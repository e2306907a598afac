"""People's scripts that save bandwidths over the REST API, each one of its Links, one number higher each time."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

FIRST_KBIT = 1_000
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Save:
    """One request. `status` 0: no answer came, so nobody knows whether it was accepted."""

    link: Mapping[str, Any]
    kbit: int
    asked_at: float
    answered_at: float
    status: int

    @property
    def is_accepted(self) -> bool:
        return self.status == 200


def save(port: int, link: Mapping[str, Any], kbit: int) -> Save:
    """PATCH through nginx; one connection, one try."""
    asked_at = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    headers = {"Authorization": f"Token {link['token']}", "Content-Type": "application/json"}
    status = 0
    try:
        connection.request("PATCH", f"/api/v1/links/{link['id']}/", json.dumps({"bandwidth_kbit": kbit}), headers)
        answer = connection.getresponse()
        answer.read()
        status = answer.status
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return Save(link, kbit, asked_at, time.monotonic(), status)


@dataclass
class Savers:
    """What all of them did."""

    saves: list[Save] = field(default_factory=list)

    def accepted(self) -> list[Save]:
        return [one for one in self.saves if one.is_accepted]

    def failed(self) -> list[Save]:
        return [one for one in self.saves if not one.is_accepted]


@contextmanager
def saving(port: int, links: Sequence[Mapping[str, Any]], *, pause_s: float, seed: int = 1) -> Iterator[Savers]:
    """One person per Link saves, pauses, and saves again, until the end of the block."""
    found, over = Savers(), threading.Event()

    def work(link: Mapping[str, Any], number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        kbit = FIRST_KBIT
        while not over.wait(chance.uniform(0, 2 * pause_s)):
            kbit += 1
            found.saves.append(save(port, link, kbit))

    threads = [threading.Thread(target=work, args=(link, number)) for number, link in enumerate(links)]
    for one in threads:
        one.start()
    try:
        yield found
    finally:
        over.set()
        for one in threads:
            one.join()
