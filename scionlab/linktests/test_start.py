"""What the user's end of a test needs to start: address, time, and the key of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from bandwidth_config import RuleError
from contract.link_tests import ARMED_AHEAD_S, run_key
from scionlab.enforcement.agents import agent_of
from scionlab.enforcement.models import HostReceipt
from scionlab.linktests.models import LinkTest, TestResult
from scionlab.linktests.sending import check_load
from scionlab.linktests.test_policy import allowance_of
from scionlab.linktests.test_status import reason_against, status_of_test
from scionlab.platform.field_errors import FieldRuleError
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.models import Host

LONGEST_WAIT_S: Final = 60


@dataclass(frozen=True)
class Start:
    """`key` is in hexadecimal; times in ms since 1970, by this service's clock."""

    test: Annotated[str, "32 hexadecimal digits."]
    key: Annotated[str, "Valid for this run only; 64 hexadecimal digits. It is not stored."]
    ip: str
    port: int
    remote_ip: str
    from_ms: int
    until_ms: int
    now_ms: int
    tool: str
    parameters: Mapping[str, int]
    phases: Annotated[list[dict[str, Any]], "docs/api.md has their keys."]


class NotArmedError(RuleError):
    """The attachment point has not confirmed the test (yet); ask again when it prepares for it."""

    def __init__(self, message: str, until_begin: timedelta) -> None:
        super().__init__("test_not_armed", message)
        after_s = max(1, min(LONGEST_WAIT_S, round(until_begin.total_seconds()) - ARMED_AHEAD_S))
        self.headers = {"Retry-After": str(after_s)}
        self.more = {"retry_after_s": after_s}


def link_test_start(test: LinkTest, *, now: datetime) -> Start:
    """Read-only, for a test of `with_results`. Raises `NotArmedError`, `RuleError` (`test_over`, `test_sends_nothing`,
    `test_load`)."""
    if not test.sends or test.port is None:
        raise FieldRuleError("test_sends_nothing", "A watch sends nothing and has no start.", "tool")
    if test.cancelled_at is not None:
        raise RuleError("test_over", "This test was cancelled. Create another one.")
    if now >= test.ends_at:
        raise RuleError("test_over", f"This test ended at {say_time(test.ends_at)}. Create another one.")
    result = test.result_of(TestResult.Side.AP)
    if result is not None and result.is_final:
        raise RuleError("test_over", status_of_test(test, now=now).text)
    near, far = test.link.interface_a, test.link.interface_b
    agent = agent_of(near.host, near.AS.isd_as, now=now)
    if reason := reason_against(agent, kind=test.kind):
        raise NotArmedError(f"{reason[0].upper()}{reason[1:]}.", test.begins_at - now)
    if test.armed_at is None:
        text = f"The attachment point has not confirmed this test, which begins {say_time(test.begins_at)}."
        raise NotArmedError(text, test.begins_at - now)
    _check_load(test, now)
    secret = confirmed_secret(near.host, agent.receipt)
    return Start(
        test=test.test_id,
        key=run_key(secret, test.test_id).hex(),
        ip=near.public_ip,
        port=test.port,
        remote_ip=far.public_ip,
        from_ms=_ms(test.begins_at),
        until_ms=_ms(test.ends_at),
        now_ms=_ms(now),
        tool=test.tool,
        parameters=test.parameters or {},
        phases=test.phases or [],
    )


def _check_load(test: LinkTest, now: datetime) -> None:
    """Check the current policies shortly before the start: without the key nothing is sent."""
    if test.created_by is None or test.ap is None:
        return
    allowance = allowance_of(test.created_by, test.tool)
    if allowance.max_load_percent is None:
        return
    if test.begins_at - now > timedelta(seconds=ARMED_AHEAD_S):
        text = (
            f"The load of the attachment point decides whether this test may send, {ARMED_AHEAD_S} s before it begins "
            f"at {say_time(test.begins_at)}."
        )
        raise NotArmedError(text, test.begins_at - now)
    check_load(test.ap, allowance, now)


def confirmed_secret(host: Host, receipt: HostReceipt | None) -> str:
    """The newest secret that the host has according to its receipt."""
    limits_version = None if receipt is None else receipt.limits_version
    is_behind = limits_version is not None and limits_version < host.secret_limits_version
    return host.previous_secret if is_behind and host.previous_secret else host.secret


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
