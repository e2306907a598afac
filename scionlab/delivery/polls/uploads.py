"""Uploads of hosts, the only large bodies: the credentials are read before them, and a host sends two at once.

Everybody else's bodies are small (`threads.MAX_BODY_BYTES`), so nobody without credentials takes their memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import lru_cache
from typing import Final, NamedTuple

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from scionlab.delivery.host_api.auth import password_for
from scionlab.delivery.polls.answers import nothing_more
from scionlab.delivery.polls.known import DatabaseAwayError, Known
from scionlab.delivery.polls.threads import CLOSE, MAX_UPLOAD_BYTES, Django, Receive, Scope, Send, respond

AT_ONCE: Final = 2  # of one host, in each process
RETRY_AFTER_S: Final = 5
_UPLOAD = re.compile(r"/api/v4/host/([^/]+)/(enforcement|usage|test_results|installed)", flags=re.ASCII)


class Upload(NamedTuple):
    uid: str
    is_receipt: bool


def read_upload(scope: Scope) -> Upload | None:
    """None for anything else."""
    path = _UPLOAD.fullmatch(scope["path"])
    return None if path is None else Upload(path[1], path[2] == "enforcement")


class AtOnce(Counter[str]):
    """By host: how many it does at once in this process, at most `AT_ONCE`."""

    def is_full(self, uid: str) -> bool:
        return self[uid] >= AT_ONCE

    @contextmanager
    def one(self, uid: str) -> Iterator[None]:
        self[uid] += 1
        try:
            yield
        finally:
            self[uid] -= 1
            if not self[uid]:
                del self[uid]


class Uploads:
    """Those of one process that are arriving."""

    def __init__(self, django: Django) -> None:
        self._django = django
        self._arriving = AtOnce()

    async def answer(
        self, upload: Upload, scope: Scope, receive: Receive, send: Send, *, known: Known, threads: Executor
    ) -> None:
        """Django's response; to others than the host without reading their bodies."""
        uid = upload.uid
        if not await _is_host(uid, known, scope):
            await self._django.answer(scope, nothing_more, send, threads)
            return
        if self._arriving.is_full(uid):
            text = f"This host is sending {AT_ONCE} documents already. Send this one when they have arrived.\n"
            await respond(send, 429, text.encode(), (b"retry-after", b"%d" % RETRY_AFTER_S), CLOSE)
            return
        with self._arriving.one(uid):
            await self._django.answer(scope, receive, send, threads, most_bytes=MAX_UPLOAD_BYTES)


async def _is_host(uid: str, known: Known, scope: Scope) -> bool:
    """Whether the request has the credentials of the host. False while the database is away."""
    headers = dict(scope["headers"])
    password = password_for(uid, headers.get(b"authorization", b"").decode("latin-1"))
    if password is None or not would_reach_a_view(headers):
        return False
    try:
        state = await known.fresh(uid, lambda found: found.has_secret(password))
    except DatabaseAwayError:
        return False
    return state is not None and state.has_secret(password)


def would_reach_a_view(headers: dict[bytes, bytes]) -> bool:
    """False if Django's middleware responds: plain HTTP where TLS is required, or a foreign host name."""
    if settings.SECURE_SSL_REDIRECT:
        name, value = settings.SECURE_PROXY_SSL_HEADER or ("", "")
        if headers.get(name.removeprefix("HTTP_").replace("_", "-").lower().encode(), b"").decode("latin-1") != value:
            return False
    return _is_our_name(headers.get(b"host", b"").decode("latin-1"))


@lru_cache(maxsize=64)
def _is_our_name(host: str) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, settings.ALLOWED_HOSTS)
