"""The cache is full, refuses, or is gone: no save and no poll fails, and the broker has none of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
import redis as redis_client

from tests.faults.service.servers import Redis
from tests.faults.service.site import Site

FULL = 2 * 2**20  # bytes: what an empty server takes, and a few hundred configurations


@pytest.fixture
def cache(site: Site) -> Iterator[Redis]:
    made = Redis(site.folder / "cache", "--maxmemory", str(FULL), "--maxmemory-policy", "allkeys-lru")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def port(site: Site, cache: Redis) -> Iterator[int]:
    """A web tier whose cache is that one."""
    with site.web_tier(CACHE_URL=cache.url) as found:
        yield found


def fill(cache: Redis, *, prefix: str) -> None:
    """Twice what fits; ends early where the server refuses."""
    with redis_client.Redis(unix_socket_path=str(cache.socket)) as client:
        for number in range(2 * FULL // 4096):
            try:
                client.set(f"{prefix}{number}", bytes(4096))
            except redis_client.exceptions.OutOfMemoryError:
                return


def saves_and_polls(site: Site, port: int, count: int) -> Counter[tuple[str, int]]:
    """Each save is followed by a poll with the versions before it, which wants the new configuration."""
    found: Counter[tuple[str, int]] = Counter()
    for number in range(count):
        version, limits = site.versions()
        found["save", site.save(200 + number, port=port).status] += 1
        fetched = site.fetch(version=version, limits=limits, port=port)
        found["poll", fetched.status] += 1
        assert fetched.body[:2] == b"\x1f\x8b"
    return found


def evicted(cache: Redis) -> int:
    stats = dict(line.split(":", 1) for line in cache.command("info", "stats").splitlines() if ":" in line)
    return int(stats["evicted_keys"])


def test_a_full_cache_fails_no_save_and_no_poll(site: Site, cache: Redis, port: int) -> None:
    fill(cache, prefix="old")
    assert evicted(cache) > 0, "it is full, and throws away what is old"
    assert saves_and_polls(site, port, 20) == {("save", 200): 20, ("poll", 200): 20}

    cache.command("config", "set", "maxmemory-policy", "noeviction")
    fill(cache, prefix="more")
    assert cache.command("set", "one-more", "x" * 4096).startswith("OOM"), "now it refuses"
    assert saves_and_polls(site, port, 5) == {("save", 200): 5, ("poll", 200): 5}

    cache.stop()
    assert saves_and_polls(site, port, 5) == {("save", 200): 5, ("poll", 200): 5}
    assert "cache: ConnectionError" in site.request("GET", "/readyz", headers={}, port=port).text
    cache.start()
