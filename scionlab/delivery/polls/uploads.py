"""Uploads of hosts, the only large bodies: the credentials are read before them, and a host sends two at once.

Everybody else's bodies are small (`threads.MAX_BODY_BYTES`), so nobody without credentials takes their memory.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from concurrent.futures import Executor
from functools import lru_cache
from typing import Final, NamedTuple

from django.conf import settings
from django.http.request import split_domain_port, validate_host

from scionlab.delivery.host_api.auth import UID, basic_credentials
from scionlab.delivery.polls.answers import nothing_more
from scionlab.delivery.polls.known import DatabaseAwayError, HostState, Known
from scionlab.delivery.polls.threads import CLOSE, MAX_UPLOAD_BYTES, Django, Receive, Scope, Send, respond
from scionlab.platform.clock import database_now
from scionlab.testbed.models.host import secret_fits

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


class Uploads:
    """Those of one process that are arriving."""

    def __init__(self, django: Django) -> None:
        self._django = django
        self._arriving: Counter[str] = Counter()  # by host

    async def answer(
        self, upload: Upload, scope: Scope, receive: Receive, send: Send, *, known: Known, threads: Executor
    ) -> None:
        """Django's response; to others than the host without reading their bodies."""
        uid = upload.uid
        if not await _is_host(uid, known, scope):
            await self._django.answer(scope, nothing_more, send, threads)
            return
        if self._arriving[uid] >= AT_ONCE:
            text = f"This host is sending {AT_ONCE} documents already. Send this one when they have arrived.\n"
            await respond(send, 429, text.encode(), (b"retry-after", b"%d" % RETRY_AFTER_S), CLOSE)
            return
        self._arriving[uid] += 1
        try:
            await self._django.answer(scope, receive, send, threads, most_bytes=MAX_UPLOAD_BYTES)
        finally:
            self._arriving[uid] -= 1
            if not self._arriving[uid]:
                del self._arriving[uid]


async def _is_host(uid: str, known: Known, scope: Scope) -> bool:
    """Whether the request has the credentials of the host. False while the database is away."""
    headers = dict(scope["headers"])
    credentials = basic_credentials(headers.get(b"authorization", b"").decode("latin-1"))
    if credentials is None or not hmac.compare_digest(credentials[0], uid.encode()) or not UID.fullmatch(uid):
        return False
    password = credentials[1]

    def has_its_secret(state: HostState) -> bool:
        return secret_fits(
            password,
            secret=state.secret,
            previous=state.previous_secret,
            previous_until=state.previous_secret_until,
            now=database_now(),
        )

    if not would_reach_a_view(headers):
        return False
    try:
        state = await known.fresh(uid, has_its_secret)
    except DatabaseAwayError:
        return False
    return state is not None and has_its_secret(state)


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
