"""A deployment: the old web tier ends while polls wait and people save, a new one starts, both run side by side.

packaging/lab/up does the same with packaging/deploy and containers.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lab.nginx import free_port
from tests.faults.service.nginx import Nginx
from tests.faults.service.servers import DEADLINE_S, wait_for
from tests.faults.service.site import Answer, InBackground, Site


class Traffic:
    """People and hosts who come through nginx all the time; `answers` counts what they got, by who asked."""

    def __init__(self, site: Site, port: int) -> None:
        self.site, self.port = site, port
        self.answers: Counter[tuple[str, str]] = Counter()
        self._is_over = threading.Event()

    @contextmanager
    def flowing(self) -> Iterator[None]:
        who: list[tuple[str, Callable[[], Answer]]] = [("poll", partial(self._poll, host)) for host in (0, 1, 2)]
        who += [("save", partial(self._save, link)) for link in (0, 1)]
        who += [("stock client", self._stock_poll), ("page", self._page)]
        threads = [InBackground(partial(self._repeat, name, ask)) for name, ask in who]
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.result()

    def _repeat(self, name: str, ask: Callable[[], Answer]) -> None:
        while not self._is_over.is_set():
            try:
                answer = ask()
            except Exception as exc:  # whatever it is, somebody was not served
                self.answers[name, repr(exc)] += 1
                continue
            was_sent_away = name == "poll" and answer.status == 503 and b"Ask again after" in answer.body
            self.answers[name, "sent away" if was_sent_away else str(answer.status)] += 1
            self._is_over.wait(int(answer.headers["Retry-After"]) if was_sent_away else 0.1)

    def _save(self, link: int) -> Answer:
        return self.site.save(200 + time.monotonic_ns() % 700, link=link, port=self.port)

    def _poll(self, host: int) -> Answer:
        version, limits = self.site.versions(host)
        return self.site.poll(version=version, limits=limits, wait_s=5, host=host, port=self.port)

    def _stock_poll(self) -> Answer:
        return self.site.poll(version=self.site.versions(2)[0], host=2, port=self.port)

    def _page(self) -> Answer:
        headers = {"Cookie": f"sessionid={self.site.facts['owner_cookie']}"}
        return self.site.request("GET", "/ases/", headers=headers, port=self.port)


def test_a_deployment_behind_nginx_fails_no_save_and_no_poll(site: Site) -> None:
    new_port = free_port()
    newer = site.another(new_port)
    front = Nginx(site.port, new_port)
    traffic = Traffic(site, front.port)
    try:
        front.start()
        with traffic.flowing():
            time.sleep(1)  # the old one alone, and nobody at the new one's port
            newer.start_part("web")
            wait_for(lambda: site.answers(new_port), "the new one is up")
            time.sleep(1)  # both
            old = site.service.part("web")
            old.send_signal(signal.SIGTERM)
            assert old.wait(timeout=DEADLINE_S) == 0
            time.sleep(2)  # the new one alone
    finally:
        front.stop()
        newer.stop()
    served = {"save": {"200"}, "poll": {"200", "304", "sent away"}, "stock client": {"200", "304"}, "page": {"200"}}
    failed = {(who, what): n for (who, what), n in traffic.answers.items() if what not in served[who]}
    assert failed == {}
    assert traffic.answers["poll", "sent away"] <= 3, "each of those who waited, once"
    assert all(sum(n for (who, _), n in traffic.answers.items() if who == name) >= 10 for name in served)


def test_the_trace_of_a_save_is_in_the_log_up_to_its_first_receipt(site: Site) -> None:
    version, limits = site.versions()
    assert site.save(610).status == 200
    log = site.service.var_dir / "log" / "web.log"
    trace = f"trace={site.facts['uids'][0][:8]}.{version.partition('.')[2]}.{limits + 1}"
    _has_line(log, "host.raised", trace.removeprefix("trace="))
    site.fetch(version=version, limits=limits)
    _has_line(log, "config.delivered", trace)
    for _ in range(2):
        assert site.report(version=version, limits=limits + 1, links={}).status == 200
    _has_line(log, "receipt.news", trace)
    assert log.read_text().count(f"receipt.news host={site.facts['ap_hosts'][0]} {trace}") == 1


def _has_line(log: Path, *words: str) -> None:
    wait_for(
        lambda: any(all(word in line for word in words) for line in log.read_text().splitlines()),
        f"{log.name} has {words}",
    )
