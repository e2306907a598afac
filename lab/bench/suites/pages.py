"""How quickly pages come with 10 000 user ASes in the database, beside the same pages with 10 of them.

One process of the web tier on a processor of its own, PostgreSQL and Redis on the others; one person clicks, page after
page in another order each round. From the request to the last byte: what a page costs here and not on the way to a
person. Bytes are those of the HTML; style and script, which a browser keeps, are said beside them.
"""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from lab.bench import service_world as world
from lab.bench.core import Outcome, Scale, Step, interleave
from lab.bench.report import Verdict, at_most, figure
from lab.bench.service_world import Site, WebServer

NAME = "pages"
TITLE = "Pages with 10 000 user ASes"
FEW = 10
MAX_STATEMENTS, WITH_NOTICES, MAX_BYTES = 10, 20, 100_000
MAX_RATIO = 1.5  # of what a page costs while no agent reports, or maxima clamp, to its healthy cost


@dataclass(frozen=True)
class Page:
    """`who` is "owner" or "staff"; `path` has names of the keys that `lab.bench.service_data people` printed."""

    name: str
    who: str
    path: str


PAGES = (
    Page("My ASes", "owner", "/ases/"),
    Page("an AS", "owner", "/ases/{user_as}/"),
    Page("a link, with a day of use", "owner", "/ases/{user_as}/links/{link}/"),
    Page("the form of a new AS", "owner", "/ases/new/"),
    Page("the form of an AS", "owner", "/ases/{user_as}/edit/"),
    Page("the account", "owner", "/account/"),
    Page("cockpit", "staff", "/cockpit/"),
    Page("an attachment point", "staff", "/cockpit/aps/{attachment_point}/"),
    Page("not enforced", "staff", "/cockpit/not-enforced/"),
    Page("traffic and cost", "staff", "/cockpit/traffic/"),
    Page("Django admin: links", "staff", "/admin/testbed/link/"),
    Page("API: 100 links", "staff", "/api/v1/links/"),
    Page("API: the owner's links", "owner", "/api/v1/links/"),
)


# Links at one attachment point, and what their pages cost in each condition.
CONDITIONS = ("healthy", "silent", "clamped")
JUDGED = tuple(page for page in PAGES if page.path.startswith("/cockpit/") and page.name in {
    "cockpit", "an attachment point", "not enforced",
})  # fmt: skip


def steps(scale: Scale) -> list[Step]:
    many, rounds = scale.pick((10_000, 100), (200, 5))
    return [
        Step(f"pages with {ases} ASes", 20 + ases / 100 + rounds, partial(_measure, ases, rounds))
        for ases in (FEW, many)
    ] + [_conditions_step(*scale.pick((4000, 30), (200, 5)))]


def _conditions_step(links: int, rounds: int) -> Step:
    title = f"an attachment point with {links} links, healthy, silent and clamped"
    return Step(title, 20 + links / 100 + rounds, partial(_measure_conditions, links, rounds))


def _measure_conditions(links: int, rounds: int, outcome: Outcome) -> None:
    """All at one attachment point: the page of it then shows as many as it ever does."""
    with world.site("postgresql", hosts=0, links=0) as site:
        facts = json.loads(site.run("-m", "lab.bench.service_data", "people", str(links), "1").splitlines()[-1])
        with site.serve() as server:
            line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            for _ in range(3):  # the conditions take turns, so that a busy machine harms none more than another
                for condition in CONDITIONS:
                    site.run("-m", "lab.bench.service_data", "turn", condition)
                    for page in JUDGED:
                        add = partial(outcome.add, what="condition", page=page.name, condition=condition)
                        _repeat(server, partial(_get, line, page, facts), rounds, add)
            line.close()


def _repeat(server: WebServer, ask: Callable[[], object], rounds: int, add: Callable[..., None]) -> None:
    ask()
    before, began = server.cpu_s(), time.perf_counter()
    for _ in range(rounds):
        ask()
    add((time.perf_counter() - began) * 1000 / rounds, "ms", kind="time")
    add((server.cpu_s() - before) * 1000 / rounds, "ms", kind="cpu")


def _measure(ases: int, rounds: int, outcome: Outcome) -> None:
    with world.site("postgresql", hosts=0, links=0) as site:
        facts = json.loads(site.run("-m", "lab.bench.service_data", "people", str(ases)).splitlines()[-1])
        with site.serve() as server:
            _click(site, server, facts, rounds, partial(outcome.add, ases=ases))


def _click(site: Site, server: WebServer, facts: Mapping[str, object], rounds: int, add: Callable[..., None]) -> None:
    line = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    for page in PAGES:
        _get(line, page, facts)  # templates are read and compiled
        with world.statements(site.database_url) as asked:
            body, _ = _get(line, page, facts)
        add(len(asked), "statements", what="statements", page=page.name)
        add(len(body), "bytes", what="html", page=page.name)
        add(len(body) + _assets(line, body), "bytes", what="with assets", page=page.name)
    for page in interleave(PAGES, rounds):
        _, seconds = _get(line, page, facts)
        add(seconds * 1000, "ms", what="time", page=page.name)
    line.close()


def _get(line: http.client.HTTPConnection, page: Page, facts: Mapping[str, object]) -> tuple[bytes, float]:
    path = page.path.format(**facts)
    began = time.perf_counter()
    line.request("GET", path, headers={"Cookie": f"sessionid={facts[page.who]}"})
    answer = line.getresponse()
    body = answer.read()
    seconds = time.perf_counter() - began
    if answer.status != 200:
        raise ValueError(f"{path} is answered {answer.status}")
    return body, seconds


def _assets(line: http.client.HTTPConnection, body: bytes) -> int:
    """Bytes of the styles and scripts that a page of HTML names."""
    total = 0
    for found in set(re.findall(rb'(?:src|href)="(/static/[^"]+\.(?:css|js))"', body)):
        line.request("GET", found.decode())
        total += len(line.getresponse().read())
    return total


# --- what it says -----------------------------------------------------------------------------------------------


def verdicts(outcome: Outcome) -> Iterator[Verdict]:
    """Of our own pages: Django's admin brings its own style. One statement asks whether the connection still stands."""
    many = max((int(ases) for ases in outcome.values("ases")), default=FEW)
    for page in PAGES:
        asked = outcome.median(what="statements", page=page.name, ases=many)
        size = outcome.median(what="with assets", page=page.name, ases=many)
        if asked is None or size is None or page.path.startswith(("/admin/", "/api/")):
            continue
        most = WITH_NOTICES if page.name == "cockpit" else MAX_STATEMENTS
        yield Verdict(
            f"{page.name}, {many:,} ASes: at most {most} statements and {MAX_BYTES // 1000} kB with style and script",
            f"{asked - 1:.0f} and {figure(size / 1000)} kB",
            asked - 1 <= most and size <= MAX_BYTES,
        )
    for page in JUDGED:
        cpu = {
            one.labels["condition"]: one.median for one in outcome.find(what="condition", page=page.name, kind="cpu")
        }
        for condition in CONDITIONS[1:]:
            target = f"{page.name}, {condition}: CPU <= {MAX_RATIO:g}x of the healthy page"
            yield from at_most(target, cpu.get(condition), cpu.get("healthy"), MAX_RATIO, "ms")
