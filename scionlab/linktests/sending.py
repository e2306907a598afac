"""Tests that send: the phases of a tool under the limits of its Link, and preconditions. `linktests.link_test` reserves
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from bandwidth_config import Limits, format_kbit
from contract.link_tests import MAX_TEST_BYTES, MAX_TEST_S
from scionlab.accounts.models import User
from scionlab.enforcement.directions import DIRECTIONS, WORDS, DirectionName
from scionlab.enforcement.status import link_status
from scionlab.limits.measured import TRAFFIC
from scionlab.linktests.test_policy import Allowance
from scionlab.linktests.test_status import reason_against
from scionlab.platform.field_errors import FieldRuleError, at_field
from scionlab.testbed import selectors
from scionlab.testbed.models import AttachmentPoint, Link
from station.plan import STREAM, USER, Phase, ap_bytes, ap_kbit, total_s
from station.tools import TOOLS

MEGABYTE: Final = 1_000_000


@dataclass(frozen=True)
class Plan:
    """What both ends do. `kbit` and `max_bytes` are of the attachment point's end, `offered_bytes` of both."""

    tool: str
    parameters: Mapping[str, int]
    phases: tuple[Phase, ...]
    limits: Limits

    @property
    def duration_s(self) -> int:
        return total_s(self.phases)

    @property
    def kbit(self) -> int:
        return ap_kbit(self.phases)

    @property
    def max_bytes(self) -> int:
        return ap_bytes(self.phases)

    @property
    def offered_bytes(self) -> int:
        return self.max_bytes + sum(one.payload_of_an_end for one in self.phases if one.sends(USER))


def plan_of(tool: str, given: Mapping[str, object], limits: Limits) -> Plan:
    """Make the plan for the `limits` at its start. Raises `FieldRuleError` (`test_blocked`, `test_parameter`,
    `test_bytes`)."""
    for name, kbit in zip(DIRECTIONS, limits, strict=True):
        if kbit == 0:
            text = (
                f"The link is blocked {WORDS[name]} (0 kbit/s) at that time. Raise the limit, or choose another time."
            )
            raise FieldRuleError("test_blocked", text, "link_id")
    with at_field("parameters"):
        parameters = TOOLS[tool].read(given)
        phases = TOOLS[tool].phases(parameters, *limits)
    plan = Plan(tool, parameters, phases, limits)
    if plan.max_bytes > MAX_TEST_BYTES:
        text = (
            f"The attachment point would send {_megabytes(plan.max_bytes)} MB; a test sends "
            f"{_megabytes(MAX_TEST_BYTES)} MB at most. Choose shorter phases, or a lower limit for that time."
        )
        raise FieldRuleError("test_bytes", text, "parameters")
    return plan


def check_plan(plan: Plan, allowance: Allowance, sent_today_bytes: int) -> None:
    """Check the plan against a person's allowance. Raises `FieldRuleError` (`test_long`, `test_share`, `test_data`)."""
    allowed_s = min(allowance.max_seconds, MAX_TEST_S)
    if plan.duration_s > allowed_s:
        text = (
            f"{plan.duration_s} s exceed the {allowed_s} s that such a test may last. Choose shorter phases, or ask "
            "the administrators for more."
        )
        raise FieldRuleError("test_long", text, "parameters")
    for phase in plan.phases:
        for name in _streams(phase):
            limit_kbit = plan.limits[DIRECTIONS.index(name)]
            if phase.kbit * 100 > limit_kbit * allowance.limit_percent:
                text = (
                    f"This test would offer {format_kbit(phase.kbit)} {WORDS[name]}, where the limit is "
                    f"{format_kbit(limit_kbit)}; you may offer {allowance.limit_percent} % of it. Choose another tool "
                    "or other parameters, or ask the administrators for more."
                )
                raise FieldRuleError("test_share", text, "parameters")
    allowed_bytes = allowance.megabytes_per_day * MEGABYTE
    if sent_today_bytes + plan.offered_bytes > allowed_bytes:
        text = (
            f"This test would send {_megabytes(plan.offered_bytes)} MB, after {_megabytes(sent_today_bytes)} MB within "
            f"the last 24 hours; you may send {allowance.megabytes_per_day} MB. Try again later, choose shorter "
            "phases, or ask the administrators for more."
        )
        raise FieldRuleError("test_data", text, "parameters")


def _streams(phase: Phase) -> tuple[DirectionName, ...]:
    """Directions in which it may offer more than the limit: TCP backs off instead."""
    return tuple(one for one in DIRECTIONS if phase.kind == STREAM and phase.direction in {one, "both"})


def _megabytes(count: int) -> str:
    return f"{count / MEGABYTE:.1f}".removesuffix(".0")


def check_load(ap: AttachmentPoint, allowance: Allowance, now: datetime) -> None:
    """Check the current traffic of the attachment point's links, in the busier direction, against the uplink or the
    total of its links, whichever is lower. The rule does not apply to unknown values, nor where no traffic is measured.
    Raises `FieldRuleError` (`test_load`)."""
    known = [one for one in (ap.uplink_kbit, ap.total_kbit) if one]
    if allowance.max_load_percent is None or not known:
        return
    used_kbit = max((one.now_kbit(ap.pk, now=now) for one in TRAFFIC), default=0)
    if used_kbit * 100 > min(known) * allowance.max_load_percent:
        text = (
            f"The links of {ap.AS.isd_as} carry {format_kbit(used_kbit)} now, of {format_kbit(min(known))}; you may "
            f"test while they carry at most {allowance.max_load_percent} % of it. Try again when there is less traffic."
        )
        raise FieldRuleError("test_load", text, "link_id")


def check_ready(link: Link, tool: str, actor: User, now: datetime) -> None:
    """Check that the person is the owner, as starting a test consents on behalf of the user's end, and that the
    attachment point is able to test. Raises `FieldRuleError` (`test_not_yours`, `test_not_enforced`,
    `test_not_possible`)."""
    owner = link.interface_b.AS.useras.owner
    if owner != actor:
        text = f"The AS belongs to {owner}. A test sends to its host, so only its owner may start one."
        raise FieldRuleError("test_not_yours", text, "link_id")
    status = link_status(selectors.with_relations(Link.objects.filter(pk=link.pk)).get(), now=now)
    if status.agent is not None and (reason := reason_against(status.agent, kind=TOOLS[tool].kind)):
        text = f"{reason[0].upper()}{reason[1:]}, so this test is not possible."
        raise FieldRuleError("test_not_possible", text, "link_id")
    if status.stage != "enforced":
        text = f"{status.text} A test that sends needs a limit that is enforced. Try again when it is."
        raise FieldRuleError("test_not_enforced", text, "link_id")
