"""What the service stored of a flood is what the kernel counted, to the byte: the real agent, the real service.

In the middle of it the agent is killed, somebody makes the link's classes anew by hand, and a batch is sent twice.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from ap_agent.usage.batch import new_batch_id, time_text
from ap_agent.usage.spool import Spool
from lab.demo.world import UserAs
from tests.e2e.conftest import Stack
from tests.e2e.test_rotation import shell, wait_until
from tests.usage_flood import Ends, Flood, added, backlog, kernel, make_anew_by_hand
from tests.usage_ledger import Sums

pytestmark = [pytest.mark.kernel, pytest.mark.timeout(180)]

USER_AS = UserAs("Usage", "clara@example.org", "192.0.2.13", 50_500, 900, 0)
_STORED = """
import json
from datetime import timedelta
from django.utils import timezone
from scionlab.models import UsageCounter
from scionlab.usage.series import usage_of_link
fields = "direction", "segment", "bytes", "packets", "drops"
counters = UsageCounter.objects.filter(series__link_id={link}).values_list(*fields)
begins_at, ends_at = timezone.now() - timedelta(hours=1), timezone.now() + timedelta(minutes=5)
points = usage_of_link({link}, begins_at=begins_at, ends_at=ends_at, step="10s").points
drawn = dict.fromkeys(("to_user", "from_user"), 0)
for point in points:
    for name in drawn:
        one = getattr(point, name)
        drawn[name] += one.bytes if one is not None else 0
print(json.dumps(dict(counters=list(counters), drawn=drawn)))
"""


def restart(stack: Stack, number: int) -> None:
    assert stack.agent.pid is not None
    os.kill(stack.agent.pid, number)
    stack.agent.wait(20)
    stack.agent.start()


def sample(stack: Stack) -> None:
    """Wait for one that was begun after now."""
    now = time_text(int(time.time() * 1000) + 1)
    health = stack.agent.state.parent / "run" / "health.json"

    def sampled_at() -> str:
        found: dict[str, Any] = json.loads(health.read_bytes())
        return (found["usage"] or {}).get("sampled_at") or ""

    wait_until(lambda: sampled_at() > now, "no sample was taken")


def send_twice(spool: Spool) -> None:
    """What is open is closed, and lies there a second time under another name."""
    for found in list(spool.open_batches()):
        spool.close(found.batch)
    path = spool.closed()[-1]
    shutil.copy(path, path.with_name(f"{path.name[:14]}{new_batch_id()}.json.gz"))


def stored(stack: Stack, link: int) -> tuple[Sums, dict[tuple[int, str], int], dict[str, int]]:
    """Sums of the counters, how many segments each direction had, and the bytes that are drawn."""
    found = json.loads(shell(stack, _STORED, link=str(link)))
    sums: Sums = {}
    lives: dict[tuple[int, str], int] = {}
    for direction, _, *counters in found["counters"]:
        key = (link, direction)
        sums = added(sums, {key: (counters[0], counters[1], counters[2])})
        lives[key] = lives.get(key, 0) + 1
    return sums, lives, found["drawn"]


def test_what_the_service_stored_of_a_flood_is_what_the_kernel_counted(stack: Stack) -> None:
    ap, agent = stack.world.ap, stack.agent
    stack.site.create_user_as(USER_AS, stack.attachment_point_id)
    link = stack.site.link(USER_AS)
    number = int(link["attachment_point_interface_id"])
    wait_until(lambda: agent.kernel_rates_kbit(number) == (USER_AS.kbit, USER_AS.kbit), "it is not enforced")
    entry = json.loads((agent.state / "current" / "etc" / "scion" / "link_info.json").read_bytes())[str(number)]
    user = stack.world.users[USER_AS.host_name]
    ends = Ends(user, (entry["Local-IP"], entry["Local-Port"]), (entry["IP-Address"], entry["Port"]))

    with Flood(ap, {number: ends}) as flood:
        sample(stack)
        restart(stack, signal.SIGKILL)
        sample(stack)
        assert agent.pid is not None
        os.kill(agent.pid, signal.SIGSTOP)
        counted = kernel(ap)[number, "to_user"][0]
        wait_until(lambda: kernel(ap)[number, "to_user"][0] > counted + 50_000, "the flood does not pass")
        flood.paused.add(number)
        wait_until(lambda: backlog(ap, number) == 0, "the queues do not run dry")
        before = {key: one for key, one in kernel(ap).items() if key[0] == number}
        make_anew_by_hand(ap, number)
        os.kill(agent.pid, signal.SIGCONT)
        wait_until(lambda: agent.kernel_rates_kbit(number) == (USER_AS.kbit, USER_AS.kbit), "it is not put right")
        flood.paused.clear()
        sample(stack)
    wait_until(lambda: backlog(ap, number) == 0, "the queues do not run dry")
    after = {key: one for key, one in kernel(ap).items() if key[0] == number}
    sample(stack)
    os.kill(agent.pid, signal.SIGTERM)
    agent.wait(20)
    spool = Spool(Path(agent.state) / "usage")
    send_twice(spool)
    agent.start()
    wait_until(lambda: not spool.closed(), "it is not uploaded", within_s=30)

    expected = {(int(link["id"]), key[1]): one for key, one in added(before, after).items()}
    sums, lives, drawn = stored(stack, int(link["id"]))
    assert all(one[0] > 100_000 and one[2] > 0 for one in expected.values()), expected
    assert sums == expected
    assert set(lives.values()) == {2}
    assert drawn == {key[1]: one[0] for key, one in expected.items()}
    assert agent.problems() == []
