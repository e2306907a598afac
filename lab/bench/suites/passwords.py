"""A page while strangers guess passwords, beside the same page while nobody does.

The web tier as it is deployed (two worker processes, all processors), PostgreSQL and Redis beside it. Each guess comes
from another address, so that the lock of addresses, which would answer the 51st guess without hashing, never closes.
The peer is the same service with Django's own hasher. Quiet and guessed-at rounds take turns.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from lab.bench import service_world as world
from lab.bench.core import Outcome, Scale, Step, interleave, percentile
from lab.bench.plots import Plot
from lab.bench.report import NOTHING, Table, figure
from lab.bench.service_world import WebServer

NAME = "passwords"
TITLE = "Pages while strangers guess passwords"
GUESSES_PER_S = 50
MOST_AT_ONCE = 64  # guesses under way; the server's queue is the bottleneck long before
PAUSE_S = 0.05  # of the person who clicks
MOST_RATIO = 3.0
US, PEER = "ours", "Django's hasher"
QUIET, GUESSED = "quiet", "guessed at"
SETTINGS = {US: "scionlab.settings.dev", PEER: "lab.bench.peers.default_hashing"}
COMMAND = ["--config", "python:scionlab.gunicorn"]


def steps(scale: Scale) -> list[Step]:
    rounds, clicks = scale.pick((5, 100), (2, 20))
    seconds = 15 + 4 * rounds * clicks * PAUSE_S
    return [Step(f"guesses, {variant}", seconds, partial(_measure, variant, rounds, clicks)) for variant in (US, PEER)]


def _measure(variant: str, rounds: int, clicks: int, outcome: Outcome) -> None:
    with world.site("postgresql", hosts=0, links=0) as site:
        facts = json.loads(site.run(["-m", "lab.bench.service_data", "people", "100"]).splitlines()[-1])
        path = "/ases/{user_as}/links/{link}/".format(**facts)
        everywhere = f"0-{max(1, (os.cpu_count() or 2) - 1)}"
        proxied = {"TRUSTED_PROXIES": "1"}
        with site.serve(COMMAND, SETTINGS[variant], cpus=everywhere, environment=proxied) as server:
            click = partial(_click, server.port, path, facts["owner"])
            _rounds(server, click_all=partial(_clicks, click, clicks), rounds=rounds, variant=variant, outcome=outcome)


def _rounds(server: WebServer, *, click_all: partial[list[float]], rounds: int, variant: str, outcome: Outcome) -> None:
    click_all()  # templates are read and compiled, connections opened
    for kind in interleave([QUIET, GUESSED], rounds):
        if kind == QUIET:
            found = click_all()
        else:
            with guesses(server.port) as statuses:
                time.sleep(1)  # until there are as many at once as there will be
                found = click_all()
                outcome.add(server.all_resident_bytes() / 2**20, "MiB", what="memory", variant=variant)
            for status, count in statuses.items():
                outcome.add(count / statuses.total() * 100, "%", what="guesses", status=status, variant=variant)
        for seconds in found:
            outcome.add(seconds * 1000, "ms", what=kind, variant=variant)


def _clicks(click: partial[float], clicks: int) -> list[float]:
    found = []
    for _ in range(clicks):
        found.append(click())
        time.sleep(PAUSE_S)
    return found


def _click(port: int, path: str, session: str) -> float:
    """A connection for each, as a proxy hands them out: any worker process may get it. Returns seconds."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    began = time.perf_counter()
    line.request("GET", path, headers={"Cookie": f"sessionid={session}"})
    answer = line.getresponse()
    answer.read()
    seconds = time.perf_counter() - began
    line.close()
    if answer.status != 200:
        raise ValueError(f"{path} is answered {answer.status}")
    return seconds


# --- who guesses ------------------------------------------------------------------------------------------------


@contextmanager
def guesses(port: int) -> Iterator[Counter[int]]:
    """GUESSES_PER_S log-ins with wrong passwords, of accounts that exist and of others, however slow the answers are
    (but at most MOST_AT_ONCE under way). What they were answered is counted in what is yielded."""
    token = _csrf_token(port)
    statuses: Counter[int] = Counter()
    is_over = threading.Event()

    def begin_guesses(pool: ThreadPoolExecutor) -> None:
        free = threading.Semaphore(MOST_AT_ONCE)
        due = time.monotonic()
        while not is_over.wait(max(0.0, due - time.monotonic())):
            due += 1 / GUESSES_PER_S
            if free.acquire(timeout=0.5):
                pool.submit(_guess, port, token, statuses).add_done_callback(lambda _: free.release())

    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        starter = threading.Thread(target=begin_guesses, args=(pool,))
        starter.start()
        try:
            yield statuses
        finally:
            is_over.set()
            starter.join()


def _guess(port: int, token: str, statuses: Counter[int]) -> None:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    email = f"person-{random.randrange(40)}@example.org"  # twenty of them have accounts
    body = urllib.parse.urlencode({"csrfmiddlewaretoken": token, "username": email, "password": "a guess", "next": ""})
    address = ".".join(str(random.randrange(1, 250)) for _ in range(4))
    headers = {"Cookie": f"csrftoken={token}", "X-Forwarded-For": address}
    headers["Content-Type"] = "application/x-www-form-urlencoded"
    line.request("POST", "/login/", body, headers)
    answer = line.getresponse()
    answer.read()
    statuses[answer.status] += 1
    line.close()


def _csrf_token(port: int) -> str:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    line.request("GET", "/login/")
    answer = line.getresponse()
    answer.read()
    line.close()
    found = re.search(r"csrftoken=(\w+)", answer.headers.get("Set-Cookie", ""))
    if found is None:
        raise ValueError("the log-in page sets no cookie")
    return found[1]


# --- what it says -----------------------------------------------------------------------------------------------


def tables(outcome: Outcome) -> list[Table]:
    rows = []
    for variant in (US, PEER):
        quiet, guessed = (outcome.find(what=kind, variant=variant) for kind in (QUIET, GUESSED))
        if not quiet or not guessed:
            continue
        before, beside = quiet[0].samples, guessed[0].samples
        memory = outcome.find(what="memory", variant=variant)
        shares = [
            f"{outcome.median(what='guesses', variant=variant, status=status):.0f} % {status}"
            for status in sorted(outcome.values("status", variant=variant))
        ]
        rows.append([
            variant,
            *(figure(percentile(found, share)) for found in (before, beside) for share in (0.5, 0.95)),
            f"{percentile(beside, 0.5) / percentile(before, 0.5):.2f}x",
            f"{percentile(beside, 0.95) / percentile(before, 0.95):.2f}x",
            ", ".join(shares),
            figure(max(memory[0].samples)) if memory else NOTHING,
        ])  # fmt: skip
    header = ["hashing", "quiet: median, ms", "quiet: 95 %, ms", "guessed at: median, ms", "guessed at: 95 %, ms"]
    header += ["ratio of medians", "ratio of 95 %", "guesses answered", "memory of the web tier, MiB"]
    remark = (
        f"The page of a link, while {GUESSES_PER_S} guesses a second come, each from another address. The bound is a "
        f"ratio of {MOST_RATIO:.0f}. 200: the password was hashed and is wrong; 503: no place to hash it, try later."
    )
    return [Table("A page beside guesses", header, rows, remark)]


def plots(outcome: Outcome) -> list[Plot]:  # noqa: ARG001  four figures are a table
    return []
