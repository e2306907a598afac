"""The service's keys and the host's secret are replaced while the agent runs; nobody touches the attachment point."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lab.demo.world import ADMIN, UserAs
from tests.e2e.conftest import Stack

pytestmark = pytest.mark.kernel

USER_AS = UserAs("Rotation", "felix@example.org", "192.0.2.12", 50_400, 1_000, 0)
_NEW_KEY = """
from scionlab.delivery.signing import key_ring, signing_key_rotate
print(key_ring().entries[0]["key_id"])
signing_key_rotate(actor=None)
"""
_NEW_SECRET = """
from scionlab.testbed.models import Host
from scionlab.accounts.models import User
from scionlab.testbed.host import host_rotate_secret
from scionlab.delivery.signing import signing_key_revoke
signing_key_revoke(key_id={old_key!r}, actor=None)
host = Host.objects.get(attachment_point__pk={ap})
host_rotate_secret(host_id=host.pk, actor=User.objects.get(email={admin!r}))
print(Host.objects.get(pk=host.pk).secret == host.secret)
"""
_FORGET_FORMER = """
from scionlab.testbed.models import Host
print(Host.objects.filter(attachment_point__pk={ap}).update(previous_secret="", previous_secret_until=None))
"""


def wait_until(condition: Callable[[], bool], what: str, *, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def save(stack: Stack, kbit: int) -> None:
    """In the form, and wait until the kernel has it and the page says so."""
    stack.site.change_limit(USER_AS, kbit)
    interface_id = int(stack.site.link(USER_AS)["attachment_point_interface_id"])
    wait_until(
        lambda: stack.agent.kernel_rates_kbit(interface_id) == (kbit, kbit), f"the kernel did not get {kbit} kbit/s"
    )
    wait_until(lambda: stack.site.status(USER_AS)["stage"] == "enforced", f"the page does not say that {kbit} holds")


def shell(stack: Stack, script: str, **values: str) -> str:
    text = script.format(ap=stack.attachment_point_id, admin=ADMIN, **values)
    return stack.service.manage("shell", "--no-imports", "-c", text).splitlines()[-1]


def test_agent_follows_new_keys_and_a_new_secret_without_anybodys_hand(stack: Stack) -> None:
    pid, enrolled = stack.agent.pid, stack.agent.credentials.read_bytes()
    stack.site.create_user_as(USER_AS, stack.attachment_point_id)
    old_key = shell(stack, _NEW_KEY)
    save(stack, 1_200)  # signed by both
    assert shell(stack, _NEW_SECRET, old_key=old_key) == "False"
    save(stack, 1_300)  # signed by the new key alone; the enrolment knows only the old one
    assert shell(stack, _FORGET_FORMER) == "1"  # as after its 24 hours
    save(stack, 1_400)

    assert stack.agent.problems() == []
    assert (stack.agent.pid, stack.agent.credentials.read_bytes()) == (pid, enrolled)
    stack.agent.check()
