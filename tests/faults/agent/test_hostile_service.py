"""A service that would harm the agent which asks it: bombs, bodies without an end, trickles, redirects, broken framing.

Over real HTTP, with the real agent's process. After each answer the limits in the kernel are what they were, the
problem is named, the agent's memory has not grown by more than its own limits allow, and the next good answer counts.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent_service import Answer, Handler, endless, reply, tarball, trickle
from tests.faults.agent.conftest import World, eventually

OLD, NEW = {1: 500, 2: 300}, {1: 900, 3: 700}
GIGABYTE = 1 << 30
# The compressed limit, the unpacked one twice (zlib's buffers beside the bytes), and what Python allocates beside.
MEMORY_BYTES = 100 << 20


def bomb() -> bytes:
    """A gigabyte of zeros as 1 MB of gzip: one packed megabyte, repeated. What follows the zeros is of no interest."""
    packer = zlib.compressobj(9, wbits=31)
    head = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * (GIGABYTE // (1 << 20) - 1)


def huge_header(handler: Handler) -> None:
    handler.send_response(200)
    handler.flush_headers()
    handler.close_connection = True
    for _ in range(64):
        handler.wfile.write(b"X-A: " + b"a" * (1 << 20))


# Name -> answer, code of the problem, words of its message.
HOSTILE: dict[str, tuple[Callable[[], Answer], str, str]] = {
    "a body without end": (endless, "service_unreachable", "more than the 8388608"),
    "a byte now and then": (trickle, "service_unreachable", "did not finish"),
    "a header now and then": (
        lambda: trickle(in_headers=True),
        "service_unreachable",
        "did not finish",
    ),
    "a header of 64 MB": (lambda: huge_header, "service_unreachable", "cannot be reached"),
    "a page": (
        lambda: reply(200, b"<html>log in</html>", Content_Type="text/html"),
        "service_unreachable",
        "this is not the Coordination Service",
    ),
    "zeros called gzip": (lambda: tarball(bytes(1 << 20)), "bundle_invalid", "not gzip"),
    "an empty body": (lambda: tarball(b""), "bundle_invalid", "is truncated"),
    "a bomb of a gigabyte": (lambda: tarball(bomb()), "bundle_invalid", "unpacks to more than"),
}


@pytest.fixture
def polling(world: World) -> Iterator[tuple[World, int]]:
    world.configure(read_timeout_s=1, fetch_deadline_s=2, long_poll_s=0)  # nobody is to be waited for
    old = world.offer(OLD)
    pid = world.start("run")
    eventually(lambda: world.told(old), world.said)
    yield world, pid
    world.stop(pid)


def test_hostile_answers_harm_nothing_and_are_named(polling: tuple[World, int]) -> None:
    world, pid = polling
    good = world.service.answers["/config"]
    for name, (make, code, words) in HOSTILE.items():
        before = peak_bytes(pid)
        answer = make()
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): the peak begins anew
        world.service.answers["/config"] = answer
        eventually(lambda code=code, words=words: words in world.problems().get(code, ""), lambda: _told(world))
        assert world.enforces(OLD), name
        peak = peak_bytes(pid)
        assert peak - before < MEMORY_BYTES, (name, before, peak)
        world.service.answers["/config"] = good
        eventually(lambda: not world.problems(), lambda: _told(world))
    new = world.offer(NEW)
    eventually(lambda: world.told(new), lambda: _told(world))
    assert world.enforces(NEW)


def _told(world: World) -> str:
    return f"{world.problems()}\n{world.said()}"


def peak_bytes(pid: int) -> int:
    """VmHWM: the most memory that was resident since the peak was forgotten."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024
