"""What this service itself finds wrong with the reports of a host: who sends them, and whether they can be true."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import Final

from scionlab.enforcement.explanations import LIMITER, TRUST, Explanation
from scionlab.enforcement.models import HostReceipt, LinkEnforcement
from scionlab.enforcement.problems import Reported
from scionlab.enforcement.receipt_format import Receipt
from scionlab.testbed.models import Host

# A receipt of a run that has ended may be that much in transit. Agents send one a minute.
IN_TRANSIT: Final = timedelta(seconds=60)
MOST_RUNS: Final = 10

_EXPLANATIONS: Final[dict[str, Explanation]] = {
    "two_agents": Explanation(
        TRUST,
        "Two agents report with the credentials of this host, for example after it was cloned.",
        "Stop the wrong one, and renew the secret of the host. Until then nothing counts as enforced.",
        voids=True,
    ),
    "contradiction": Explanation(
        LIMITER,
        "The report of the host contradicts itself.",
        "Update the agent and the limiter, and check which program sends the reports.",
        voids=True,
    ),
    "other_address": Explanation(
        TRUST,
        "The agent reports from an address that is not one of the host.",
        "If the host is behind NAT or a proxy, set this on its page. Otherwise check which machine has its "
        "credentials.",
        is_warning=True,
        beside="The agent of {name} reports from an address that is not its own",
    ),
}

# An address from there is that of a proxy, or of a network with the service in it: it says nothing about the host.
_INSIDE: Final = tuple(
    ip_network(one)
    for one in (
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "::1/128",
        "fc00::/7",
        "fe80::/10",
    )
)


def doubts(name: str, host: Host, receipt: HostReceipt) -> Iterator[Reported]:
    """Problems of the host's reports; no SQL statement. `name` is that of its attachment point."""
    if receipt.rival_at is not None:
        text = (
            f"A second agent reports with the credentials of this host from {receipt.rival_address or 'unknown'}; "
            f"the newest one from {receipt.address or 'unknown'}."
        )
        yield Reported("two_agents", name, text, _EXPLANATIONS["two_agents"])
    if receipt.contradiction:
        yield Reported("contradiction", name, receipt.contradiction, _EXPLANATIONS["contradiction"])
    if not host.reports_from_elsewhere and _is_of_another(receipt.address, host):
        text = f"Its agent reports from {receipt.address}, which is no address of the host of {name}."
        yield Reported("other_address", name, text, _EXPLANATIONS["other_address"])


def _is_of_another(written: str | None, host: Host) -> bool:
    """Whether the host has addresses of this family, and this is none of them."""
    if written is None:
        return False
    address = ip_address(written)
    own = [ip_address(one) for one in (*host.public_ips, host.bind_ip) if one]
    return (
        any(one.version == address.version for one in own)
        and address not in own
        and not any(address in network for network in _INSIDE)
    )


def is_superseded(newest: HostReceipt, receipt: Receipt, *, received_at: datetime, address: str | None) -> bool:
    """Whether another run of the agent began after this one, so that it says nothing any more. If it still reports,
    that is noted: there are two agents."""
    ended = next((one[2] for one in newest.former_runs if one[0] == receipt.run), None)
    if ended is None:
        return False
    if received_at - datetime.fromisoformat(ended) > IN_TRANSIT:
        HostReceipt.objects.filter(pk=newest.pk).update(rival_address=address, rival_at=received_at)
    return True


def note_run(row: HostReceipt, receipt: Receipt, *, received_at: datetime) -> None:
    """Remember which run this receipt supersedes; before the row is changed."""
    if row.run and row.run != receipt.run:
        row.former_runs = [*row.former_runs, [row.run, row.address, received_at.isoformat()]][-MOST_RUNS:]


def contradiction(host_id: int, receipt: Receipt) -> str:
    """Why the receipt cannot be true, of stored rows; empty if it can."""
    if receipt.devices != [] and not receipt.observe_only:
        return ""
    enforced = LinkEnforcement.objects.filter(
        link__interface_a__host=host_id, state=LinkEnforcement.State.ENFORCED
    ).count()
    if not enforced:
        return ""
    why = "it only observes" if receipt.observe_only else "it names no device on which it classifies packets"
    return f"It reports {enforced} enforced {'link' if enforced == 1 else 'links'}, although {why}."
