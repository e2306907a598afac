"""What the service stored of a flood is what the kernel counted, to the byte: the real programs, the real service.

In the middle of it both programs are killed, and the limit changes.
"""

from __future__ import annotations

import json
import signal
import time

import pytest

from ap_agent.dataplane.program import LAYOUT
from ap_agent.usage.batch import ms_text
from lab.demo.world import UserAs
from lab.processes import Program
from tests.e2e.conftest import Stack
from tests.e2e.test_rotation import shell, wait_until
from tests.usage_flood import Ends, Flood, added, backlog, kernel
from tests.usage_ledger import Sums

pytestmark = pytest.mark.kernel

USER_AS = UserAs("Usage", "clara@example.org", "192.0.2.13", 50_500, 900, 0)
RAISED_KBIT = 1_200
_STORED = """
import json
from datetime import timedelta
from django.utils import timezone
from scionlab.usage.models import UsageCounter
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


def restart(stack: Stack, name: Program, number: int) -> None:
    programs = stack.agent.programs
    if number == signal.SIGKILL:
        programs.kill(name)
    else:
        programs.stop(name)
    programs.start(name)


def sample(stack: Stack) -> None:
    """Wait for one that was begun after now."""
    now = ms_text(int(time.time() * 1000) + 1)

    def sampled_at() -> str:
        return (stack.agent.programs.health().get("usage") or {}).get("sampled_at") or ""

    wait_until(lambda: sampled_at() > now, "no sample was taken")


def counted(stack: Stack, number: int) -> Sums:
    """Of this link, from the map's own memory."""
    path = stack.agent.programs.path_of("maps_dir") / f"lanes-{LAYOUT}"
    return {key: one for key, one in kernel(path, stack.world.ap).items() if key[0] == number}


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
    entry = json.loads((agent.state / "document.json").read_bytes().partition(b"\n")[2])[str(number)]
    user = stack.world.users[USER_AS.host_name]
    ends = Ends(user, (entry["Local-IP"], entry["Local-Port"]), (entry["IP-Address"], entry["Port"]))

    with Flood(ap, {number: ends}):
        sample(stack)
        restart(stack, "agent", signal.SIGKILL)
        sample(stack)
        restart(stack, "limiter", signal.SIGKILL)
        before = counted(stack, number)[number, "to_user"][0]
        wait_until(lambda: counted(stack, number)[number, "to_user"][0] > before + 50_000, "the flood does not pass")
        stack.site.change_limit(USER_AS, RAISED_KBIT)
        wait_until(lambda: agent.kernel_rates_kbit(number) == (RAISED_KBIT, RAISED_KBIT), "it is not raised")
        sample(stack)
    wait_until(lambda: backlog(ap, number) == 0, "the queues do not run dry")
    expected = {(int(link["id"]), key[1]): one for key, one in counted(stack, number).items()}
    sample(stack)
    sample(stack)
    restart(stack, "agent", signal.SIGTERM)

    assert all(one[0] > 100_000 and one[2] > 0 for one in expected.values()), expected
    wait_until(lambda: stored(stack, int(link["id"]))[0] == expected, "it is not uploaded", within_s=30)
    _, lives, drawn = stored(stack, int(link["id"]))
    assert set(lives.values()) == {1}
    assert drawn == {key[1]: one[0] for key, one in expected.items()}
    assert agent.problems() == []
