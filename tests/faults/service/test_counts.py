"""What two web processes counted is there for whoever asks, also after both have ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.nginx import free_port
from tests.faults.service.servers import DEADLINE_S, wait_for
from tests.faults.service.site import Site

pytestmark = pytest.mark.xdist_group("faults of the service")  # one process breaks it, others do not wait

SHOW = """
import django; django.setup()
from scionlab.site.metrics import exposition
print(exposition().decode())
"""


def answers_of(site: Site, port: int, path: str) -> int:
    try:
        return site.request("GET", path, headers={}, port=port).status
    except OSError:
        return 0


def counted(site: Site) -> float:
    start = 'scionlab_http_requests_total{method="GET",status="200",view="livez"} '
    lines = site.python(SHOW).splitlines()
    return sum(float(line.removeprefix(start)) for line in lines if line.startswith(start))


def test_two_processes_of_a_web_tier_count_together_and_lose_nothing_when_they_end(site: Site) -> None:
    before = counted(site)
    port = free_port()
    tier = site.another(port)
    tier.environment["WEB_WORKERS"] = "2"
    tier.environment["SCIONLAB_VAR"] = str(site.service.var_dir)  # as the web tiers of one machine share it
    (tier.var_dir / "log").mkdir(parents=True)
    web = tier.start_part("web")
    try:
        wait_for(lambda: answers_of(site, port, "/readyz"), "it answers")
        assert [answers_of(site, port, "/livez") for _ in range(40)] == [200] * 40
        workers = Path(f"/proc/{web.pid}/task/{web.pid}/children").read_text(encoding="utf-8").split()
        assert len(workers) == 2
        web.terminate()
        assert web.wait(timeout=DEADLINE_S) == 0
    finally:
        tier.stop()
    assert counted(site) == before + 40
