"""State of an attachment point's agent: judged once for all of its Links."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from scionlab.enforcement.doubts import doubts
from scionlab.enforcement.explanations import LIMITER_SILENT
from scionlab.enforcement.models import HostReceipt
from scionlab.enforcement.problems import Reported, reported
from scionlab.enforcement.words import WORDS
from scionlab.platform.notation.local_time import say_time
from scionlab.testbed.models import Host

SILENT_AFTER: Final = timedelta(seconds=180)  # the agent sends a receipt at least once a minute (docs/api.md)

# A larger offset of the agent's clock is shown on pages. Without a measured skew it is estimated from `observed_at`,
# although the receipt may have been in transit for some seconds.
CLOCK_OFF: Final = timedelta(seconds=5)
CLOCK_OFF_UNMEASURED: Final = timedelta(seconds=30)


@dataclass(frozen=True)
class Agent:
    """The agent of one host, from its newest receipt. `name` is the ISD-AS of the attachment point. `is_silent`: no
    report of the kernel, because agent or limiter is silent. `voided_by` is the problem that makes the whole receipt
    not count as enforced. `clock_off` is the lead of its clock over ours (negative: lag), None within bounds."""

    name: str
    host: Host
    receipt: HostReceipt | None
    is_silent: bool
    removed_at: datetime | None
    clock_off: timedelta | None
    problems: tuple[Reported, ...]
    voided_by: Reported | None = None
    is_limiter_silent: bool = False

    @property
    def reported_at(self) -> datetime | None:
        """Time of the last contact with the agent."""
        return None if self.receipt is None else self.receipt.received_at

    @property
    def read_at(self) -> datetime | None:
        """Time of the last report of its kernel: earlier than the contact if the limiter does not answer."""
        if self.receipt is None or not self.is_limiter_silent:
            return self.reported_at
        return min(self.receipt.observed_at, self.receipt.received_at)

    @property
    def devices(self) -> frozenset[str]:
        """Names of its devices; empty if not reported."""
        named = () if self.receipt is None else self.receipt.devices or ()
        return frozenset(one for one in named if isinstance(one, str))

    @property
    def is_foreign(self) -> bool:
        """The newest receipt is about a document that this service did not issue, so it does not count."""
        return self.receipt is not None and self.receipt.content == HostReceipt.Content.FOREIGN

    @property
    def is_void(self) -> bool:
        """Whether it reports its kernel, and nothing of that counts as enforced."""
        return not self.is_silent and (self.removed_at is not None or self.voided_by is not None)

    @property
    def is_stock_client(self) -> bool:
        """A client confirmed a SCION configuration and no receipt was ever sent: nothing fetches limits there."""
        return self.receipt is None and self.host.config_version_deployed > 0

    def is_behind(self, generation: int) -> bool:
        """Whether it reports, or fetched, something older than the newest configuration and limits of `generation`."""
        host, receipt = self.host, self.receipt
        if receipt is None:
            has = (host.delivered_config_version, host.delivered_limits_version)
        elif receipt.generation != generation:
            return True
        else:
            has = (receipt.config_version or 0, receipt.limits_version or 0)
        return has[0] < host.config_version or has[1] < host.limits_version


def agent_of(host: Host, name: str, *, now: datetime) -> Agent:
    """Build it from the host and its receipt; no SQL statement if the receipt was prefetched."""
    receipt: HostReceipt | None = getattr(host, "receipt", None)
    if receipt is None:
        return Agent(name, host, None, is_silent=False, removed_at=None, clock_off=None, problems=())
    problems = (*doubts(name, host, receipt), *reported(receipt.problems))
    codes = {one.code for one in problems}
    is_removed = "limits_removed" in codes
    is_limiter_silent = LIMITER_SILENT in codes and not is_removed
    is_agent_silent = not is_removed and now - receipt.received_at > SILENT_AFTER
    return Agent(
        name,
        host,
        receipt,
        is_silent=is_agent_silent or is_limiter_silent,
        removed_at=receipt.received_at if is_removed else None,
        clock_off=clock_off(receipt, is_read_late=is_limiter_silent),
        problems=problems,
        voided_by=next((one for one in problems if one.explanation.voids), None),
        is_limiter_silent=is_limiter_silent and not is_agent_silent,
    )


def clock_off(receipt: HostReceipt, *, is_read_late: bool) -> timedelta | None:
    """Return the lead of the agent's clock over ours; None if unknown or within bounds. `is_read_late`: the kernel was
    read well before the receipt was sent."""
    if receipt.clock_skew_ms is not None:
        found, bound = timedelta(milliseconds=receipt.clock_skew_ms), CLOCK_OFF
    elif is_read_late:
        return None
    else:
        found, bound = receipt.observed_at - receipt.received_at, CLOCK_OFF_UNMEASURED
    return found if abs(found) > bound else None


def no_report_since(agent: Agent) -> str:
    """Return `No report since 2026-11-22 07:29:00 CET`. The agent must have reported once."""
    assert agent.read_at is not None  # noqa: S101  for the type checker
    since = f"{WORDS['no_report'].word} since {say_time(agent.read_at)}"
    if agent.is_limiter_silent:
        return f"{since}: the limiter does not answer its agent"
    refusal = "" if agent.receipt is None else agent.receipt.refusal
    return f"{since}: its reports are refused ({refusal})" if refusal else since
