"""Readers of what comes from outside take time in proportion to its size, whatever is in it.

Each reads documents of 1 and 8 MB, and the long one is judged by the short one, by the processor's time: what is
slow here is C (digits, keys, patterns), whose steps nobody counts. Caches that are too small may make it four times as
dear as its size says. What is quadratic does not keep that, and a timer ends what takes minutes. Who shares its
processor meanwhile is dearer once; what is quadratic is so each time.
"""

from __future__ import annotations

import contextlib
import gc
import json
import signal
import time
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from ap_agent.agent.bundle import read_bundle
from ap_agent.common.errors import BundleError
from ap_agent.common.files import parse_json
from ap_agent.document.handover import read_document
from ap_agent.document.signatures import read_signed
from contract.link_info import LinkInfoError, parse_link_info
from tests.agent_bundles import HOST_ID, bundle_bytes, entry, zipped
from tests.limiter_documents import handed

MB = 1024 * 1024
MOST_S = 30.0  # of the processor, for 8 MB
TRIES = 3
NOISE_S = 0.025  # below this nothing is compared
REFUSALS = (LinkInfoError, BundleError, ValueError)


def _keys(size: int, *, last: str) -> bytes:
    """One object of many keys."""
    count = size // 16
    return b"{" + b",".join(b'"%09d":0' % number for number in range(count)) + b',"' + last.encode() + b'":0}'


DOCUMENTS: dict[str, Callable[[int], bytes]] = {
    "the first key twice": lambda size: _keys(size, last="000000000"),
    "many keys": lambda size: _keys(size, last="x"),
    "one key twice in each of many objects": lambda size: b"[" + b'{"a":0,"b":0,"a":0},' * (size // 20) + b"0]",
    "many keys twice in an entry": lambda size: b'{"1":' + _keys(size, last="000000000") + b"}",
    "many entries that lack everything": lambda size: json.dumps({str(n): {} for n in range(size // 14)}).encode(),
    "a long text": lambda size: b'{"1":{"ISD-AS":"' + b"x" * size + b'"}}',
    "a long key": lambda size: b'{"' + b"x" * size + b'":{}}',
    "escapes": lambda size: b'{"1":{"ISD-AS":"' + rb"\u00e4" * (size // 6) + b'"}}',
    "digits": lambda size: b'{"1":{"AS_ID":' + b"9" * size + b"}}",
    "many lines, then damage": lambda size: b'{"1":' + b"\n" * size + b"!}",
    "brackets": lambda size: b"[" * size,
    "no UTF-8 at the end": lambda size: b'{"1":"' + b"x" * size + b"\xff",
}


def as_bundle(data: bytes) -> object:
    return read_bundle(data, host_id=HOST_ID)


READERS: dict[str, Callable[[bytes], object]] = {
    "link_info.json": parse_link_info,
    "JSON of a manifest": lambda data: parse_json(data, allows_fractions=True),
    "the limiter's document": lambda data: read_document(data, host_id=HOST_ID, verify=read_signed),
    "a tarball": lambda data: as_bundle(zipped(data)),
}


@pytest.fixture(autouse=True)
def _ended_in_time() -> Iterator[None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError(f"not within {MOST_S:g} s of the processor")

    former = signal.signal(signal.SIGPROF, end)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, former)


def cpu_s(read: Callable[[bytes], object], data: bytes) -> float:
    gc.collect()
    signal.setitimer(signal.ITIMER_PROF, MOST_S)
    began = time.process_time()
    with contextlib.suppress(*REFUSALS):
        read(data)
    took_s = time.process_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0)
    return took_s


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("reader", READERS)
def test_time_grows_with_the_size_and_no_faster(reader: str, document: str) -> None:
    read, make = READERS[reader], DOCUMENTS[document]
    assert_linear(lambda size: cpu_s(read, make(size * MB - 64)), 1, 8, most=4 * 8)


def assert_linear(cost: Callable[[int], float], short: int, long: int, *, most: float) -> None:
    """The long one costs at most so many times as much as the short one, measured again if not."""
    found = []
    for _ in range(TRIES):
        found.append((cost(short), cost(long)))
        if found[-1][1] < most * max(found[-1][0], NOISE_S):
            return
    raise AssertionError(f"{long} costs more than {most:g} times what {short} does: {found} s")


def test_good_documents_are_read_in_proportion_too() -> None:
    """4094 links with everything that a link can have: that is what a service sends at most."""

    def of(count: int) -> dict[str, object]:
        return {str(n): entry(500, port=10_000 + n) for n in range(1, count + 1)}

    assert_linear(lambda count: cpu_s(READERS["the limiter's document"], handed(of(count))), 1000, 4000, most=8)
    assert_linear(lambda count: cpu_s(as_bundle, bundle_bytes(of(count))), 1000, 4000, most=8)
