"""The service under thousands of polls: waiting, answering 304, and handing out tarballs.

One process serves on a processor of its own; "per processor" is answers divided by the processor time of that process,
so neighbours and the database do not count. The database does not wait for its disk (fsync off).
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from lab.bench import service_world as world
from lab.bench.core import Label, Outcome, Scale, Step, interleave
from lab.bench.poll_client import Line, PollingHost, Said, connect, keep_asking, run
from lab.bench.report import Verdict, at_most
from lab.bench.service_world import Changes, Site, WebServer

NAME = "service"
TITLE = "The service under load"
POSTGRESQL, EMBEDDED = "PostgreSQL, Redis", "embedded"
KINDS = {POSTGRESQL: "postgresql", EMBEDDED: "embedded"}
ONCE, OFTEN = "each host once", "asked again within a second"
CACHED, RENDERED = "from the cache", "rendered"
CONNECTIONS = 32
MOST_GROWTH = 1.5
CURRENT, OLD = "version=1.1&limits=1", "version=1.0&limits=0"
WAITING = "version=1.1&limits=1&wait=60"
SETTLE_S = 1.0


def steps(scale: Scale) -> list[Step]:
    full = [(POSTGRESQL, 100, 20.0), (POSTGRESQL, 1000, 30.0), (POSTGRESQL, 9000, 150.0), (EMBEDDED, 1000, 40.0)]
    found = [
        Step(f"{count} waiting polls, {kind}", seconds, partial(_wait, kind, count, scale.pick(20, 3)))
        for kind, count, seconds in scale.pick(full, [(POSTGRESQL, 20, 15.0), (POSTGRESQL, 200, 15.0)])
    ]
    rounds, seconds = scale.pick((5, 3.0), (2, 1.0))
    for kind, hosts in ((POSTGRESQL, scale.pick(20_000, 1000)), (EMBEDDED, scale.pick(20_000, 500))):
        found.append(Step(f"304, {kind}", 60.0, partial(_answer, kind, hosts, rounds, seconds)))
    links = scale.pick(4000, 200)
    found.append(Step(f"tarballs of {links} links", 60.0, partial(_deliver, links, scale.pick(5, 2))))
    found.append(Step("SQL statements", 20.0, partial(_count, scale.pick(200, 20))))
    return found


# --- waiting ----------------------------------------------------------------------------------------------------


def _wait(kind: str, count: int, wakes: int, outcome: Outcome) -> None:
    with (
        world.site(KINDS[kind], hosts=count, links=1) as site,
        site.serve() as server,
        site.changing() as changes,
    ):
        run(lambda: _hold(site, server, changes, wakes, partial(outcome.add, kind=kind, count=count)))


async def _hold(site: Site, server: WebServer, changes: Changes, wakes: int, add: Callable[..., None]) -> None:
    loop = asyncio.get_running_loop()
    before = server.resident_bytes()
    lines = await connect(server.port, len(site.hosts))
    began, cpu_s = loop.time(), server.cpu_s()
    said = [line.ask(host.request(server.port, WAITING)) for line, host in zip(lines, site.hosts, strict=True)]
    await _until_held(site, server)
    add((server.cpu_s() - cpu_s) / len(said) * 1e6, "us", what="cpu per arrival")
    add(sum(not one.done() for one in said), "polls", what="held")
    add((server.resident_bytes() - before) / len(said), "bytes", what="memory")
    began, cpu_s = loop.time(), server.cpu_s()
    await asyncio.sleep(5)
    add((server.cpu_s() - cpu_s) / (loop.time() - began) * 100, "%", what="cpu while waiting")
    for number in range(wakes):
        committed = await loop.run_in_executor(None, changes.save, site.hosts[number].host_id)
        answer = await said[number]
        add((answer.at - committed) * 1000, "ms", what="wake one")
    rest = range(wakes, len(said))
    committed = await loop.run_in_executor(None, changes.save, "all")
    first = await asyncio.gather(*(said[number] for number in rest))
    add(max(one.at for one in first) - committed, "s", what="all answered")
    add(sum(one.status == 200 for one in first), "polls", what="all answered, with the tarball")
    _close(lines)


async def _until_held(site: Site, server: WebServer) -> None:
    """Polls are read in their order, and statements run one after the other: one that came later has its answer."""
    (line,) = await connect(server.port, 1)
    for host in site.hosts[-2:]:
        await line.ask(host.request(server.port, CURRENT))
        await asyncio.sleep(SETTLE_S)
    line.close()


# --- 304 --------------------------------------------------------------------------------------------------------


def _answer(kind: str, hosts: int, rounds: int, seconds: float, outcome: Outcome) -> None:
    with world.site(KINDS[kind], hosts=hosts, links=1) as site, site.serve() as server:
        asked = {ONCE: _requests(site.hosts, server), OFTEN: _requests(site.hosts[:CONNECTIONS], server)}
        for requests in asked.values():  # the first answers find nothing ready
            _ask(server, requests, 0.5)
        for variant in interleave(list(asked), rounds):
            cpu_s = server.cpu_s()
            said = _ask(server, asked[variant], seconds)
            _only(said, 304)
            labels: dict[str, Label] = {"kind": kind, "variant": variant}
            outcome.add(len(said) / (server.cpu_s() - cpu_s), "answers/s", what="304 per processor", **labels)


def _requests(hosts: Sequence[PollingHost], server: WebServer, query: str = CURRENT) -> Iterator[bytes]:
    return itertools.cycle([host.request(server.port, query) for host in hosts])


def _ask(server: WebServer, requests: Iterator[bytes], seconds: float, connections: int = CONNECTIONS) -> list[Said]:
    async def work() -> list[Said]:
        lines = await connect(server.port, connections)
        said = await keep_asking(lines, requests, seconds)
        _close(lines)
        return said

    found: list[Said] = run(work)
    return found


def _close(lines: Sequence[Line]) -> None:
    for line in lines:
        line.close()


def _only(said: Sequence[Said], status: int) -> None:
    """Raises `ValueError` where something else was answered: it would be counted for what it is not."""
    others = Counter(one.status for one in said if one.status != status)
    if others or not said:
        raise ValueError(f"{len(said)} answers, of which other than {status}: {dict(others)}")


# --- 200 --------------------------------------------------------------------------------------------------------


def _deliver(links: int, rounds: int, outcome: Outcome) -> None:
    with (
        world.site("postgresql", hosts=1, links=links) as site,
        site.serve() as server,
        site.changing() as changes,
    ):
        request = site.attachment_point.request(server.port, OLD)
        for variant in interleave([CACHED, RENDERED], rounds):
            said = []
            if variant == CACHED:
                _one(server, request)  # in the cache from here on
            cpu_s = 0.0
            for _ in range(20 if variant == CACHED else 3):
                if variant == RENDERED:
                    changes.save(site.attachment_point.host_id)
                before = server.cpu_s()
                said.append(_one(server, request))
                cpu_s += server.cpu_s() - before
            _only(said, 200)
            outcome.add(len(said) / cpu_s, "answers/s", what="200 per processor", variant=variant, links=links)
            outcome.add(said[-1].length, "bytes", what="tarball", variant=variant, links=links)


def _one(server: WebServer, request: bytes) -> Said:
    async def work() -> Said:
        (line,) = await connect(server.port, 1)
        answer = await line.ask(request)
        line.close()
        return answer

    said: Said = run(work)
    return said


# --- statements -------------------------------------------------------------------------------------------------


def _count(polls: int, outcome: Outcome) -> None:
    """One poll after the other, and as many as there are connections at the same time; each host asks once."""
    with world.site("postgresql", hosts=polls * 2, links=1) as site, site.serve() as server:
        halves = {1: site.hosts[:polls], CONNECTIONS: site.hosts[polls:]}
        for query, status in ((CURRENT, 304), (OLD, 200)):
            for at_once, hosts in halves.items():
                with world.statements(site.database_url) as asked:
                    said = run(partial(_each_once, server, hosts, query, at_once))
                _only(said, status)
                labels: dict[str, Label] = {"status": status, "at_once": at_once}
                writes = sum(word in {"INSERT", "UPDATE", "DELETE"} for word in asked)
                outcome.add(len(asked) / len(said), "statements", what="statements", **labels)
                outcome.add(writes / len(said), "statements", what="writes", **labels)


async def _each_once(server: WebServer, hosts: Sequence[PollingHost], query: str, at_once: int) -> list[Said]:
    lines = await connect(server.port, at_once)
    left = iter([host.request(server.port, query) for host in hosts])
    said: list[Said] = []

    async def one(line: Line) -> None:
        for request in left:
            said.append(await line.ask(request))

    await asyncio.gather(*(one(line) for line in lines))
    _close(lines)
    return said


# --- what it says -----------------------------------------------------------------------------------------------


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    woken = {int(one.labels["count"]): one.median for one in outcome.find(what="wake one", kind=POSTGRESQL)}
    if len(woken) > 1:
        few, many = min(woken), max(woken)
        target = f"from the commit to the host: grows < {MOST_GROWTH:g}x from {few} waiting hosts to {many:,}"
        yield from at_most(target, woken[many], woken[few], MOST_GROWTH, "ms")
    if found := outcome.find(what="writes", status=304):
        writes = max(one.median for one in found)
        yield Verdict("polls answered with 304: 0 rows written", f"{writes:g} rows written", writes == 0)
