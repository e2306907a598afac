"""The database's standby is promoted while people save: what was accepted is there, and nobody reads what is old."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lab import failover
from tests.faults.service.servers import Redis, wait_for
from tests.faults.service.site import Site

SAVERS = 8
BACK_WITHIN_S = 30
NO_LIMIT = "UPDATE testbed_attachmentpoint SET maximum_kbit = 1000000, default_bandwidth_kbit = 1000000"


@contextmanager
def web_tier_on(site: Site, pair: failover.Pair) -> Iterator[int]:
    """A web tier of its own on a pair that was copied from the site's database; its port."""
    redis = Redis(site.folder / "redis-of-pair")
    redis.start()
    try:
        with site.web_tier(DATABASE_URL=pair.url, REDIS_URL=redis.url) as port:
            yield port
    finally:
        redis.stop()


def savers_of(site: Site, port: int, *, first_kbit: int) -> failover.Savers:
    return failover.Savers(lambda kbit: site.save(kbit, link=kbit % 3, port=port).status, SAVERS, first_kbit)


def die_and_promote(site: Site, pair: failover.Pair, port: int, savers: failover.Savers) -> list[int]:
    """The standby is already away: the primary dies, and the standby comes back as it was. What was accepted and is
    lost then."""
    pair.primary.kill()
    died = time.monotonic()
    pair.standby.start()
    cookie = {"Cookie": f"sessionid={site.facts['owner_cookie']}"}
    assert site.request("GET", "/ases/", headers=cookie, port=port).status == 503, "what a standby has may be old"
    pair.promote()
    savers.wait_for_more(2 * SAVERS)
    assert savers.first_after(died) < BACK_WITHIN_S
    assert set(savers.refused) <= {503}
    return savers.lost(pair.saved_kbit())


def test_what_was_accepted_survives_a_failover_where_the_standby_is_synchronous(site: Site) -> None:
    with failover.pair(site.folder / "pair", copy_of=site.postgres.folder) as pair, web_tier_on(site, pair) as port:
        pair.primary.ask(NO_LIMIT)
        savers = savers_of(site, port, first_kbit=2000)
        with savers.saving():
            savers.wait_for_more(SAVERS)
            assert pair.standby.clients() == 0, "it is named first, and passed over while it follows"
            pair.standby.kill()
            savers.wait_for_more(SAVERS)
            assert die_and_promote(site, pair, port, savers) != [], "asynchronous: what the primary alone had is gone"

        pair.follow_anew()
        pair.be_synchronous()
        savers = savers_of(site, port, first_kbit=20_000)
        with savers.saving():
            savers.wait_for_more(SAVERS)
            assert pair.standby.clients() == 0, "the former primary follows, and nobody asks it"
            pair.standby.kill()
            wait_for(pair.saves_that_wait, "a save waits for the standby")
            assert die_and_promote(site, pair, port, savers) == []
