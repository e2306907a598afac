"""What a page says about a Link and about a save, in words. Reads what was loaded; decides and writes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Prefetch, prefetch_related_objects

from bandwidth_config import bandwidth_warning, format_kbit
from scionlab.forms import BandwidthForm
from scionlab.models import BandwidthChange, Interface, Link, LinkEnforcement, UserAS
from scionlab.selectors import LinkStatus, link_status, links_of

HISTORY_ROWS = 20  # of each Link, newest first
UNSETTLED = {"waiting", "delivered"}  # something is under way: such a page keeps itself up to date

_TONES = {"enforced": "good", "failed": "bad", "silent": "warn", "not_verified": "warn", "inactive": "quiet"}


@dataclass(frozen=True)
class Direction:
    """One direction of a Link as the AP's kernel has it."""

    name: str
    rate_kbit: int | None
    bytes: int | None
    packets: int | None
    drops: int | None


@dataclass(frozen=True)
class LinkPanel:
    """One Link on the page of its AS."""

    status: LinkStatus
    form: BandwidthForm

    @property
    def link(self) -> Link:
        return self.status.link

    @property
    def key(self) -> str:
        return str(self.link.pk)

    @property
    def enforcement(self) -> LinkEnforcement | None:
        return getattr(self.link, "enforcement", None)

    @property
    def directions(self) -> list[Direction]:
        found = self.enforcement
        if found is None or self.status.stage == "inactive":
            return []
        return [
            Direction(
                "To your AS",
                found.to_user_rate_kbit,
                found.to_user_bytes,
                found.to_user_packets,
                found.to_user_drops,
            ),
            Direction(
                "From your AS",
                found.from_user_rate_kbit,
                found.from_user_bytes,
                found.from_user_packets,
                found.from_user_drops,
            ),
        ]

    @property
    def changes(self) -> list[BandwidthChange]:
        """The newest ones, as `load_history` read them."""
        found: list[BandwidthChange] = getattr(self.link, "newest_changes", [])
        return found

    @property
    def warning(self) -> str | None:
        return bandwidth_warning(self.status.wanted_kbit)

    @property
    def problems(self) -> list[str]:
        """What the AP's agent complains about besides the stage's own sentence."""
        found = self.enforcement
        text = "" if found is None else found.problem
        return [text] if text and text not in self.status.text else []

    @property
    def tone(self) -> str:
        return _TONES.get(self.status.stage, "info")

    @property
    def is_delivered(self) -> bool:
        """What the agent judged had reached it, so "failed" is delivered too."""
        if self.status.stage == "inactive":
            return False
        return self.status.delivered_at is not None or self.status.stage in {"enforced", "failed"}

    @property
    def delivered_at(self) -> datetime | None:
        """The host's newest delivery; None where that was one after this Link was enforced, for somebody else's."""
        at, since = self.status.delivered_at, self.status.since
        return None if self.status.stage == "enforced" and at and since and at > since else at

    @property
    def not_delivered(self) -> str:
        return "Not to be delivered" if self.status.stage == "inactive" else "Not yet"

    @property
    def not_enforced(self) -> str:
        words = {
            "inactive": "Not to be enforced",
            "failed": "Not enforced",
            "waiting": "Not yet",
            "delivered": "Not yet",
        }
        return words.get(self.status.stage, "Not known")

    @property
    def delivered_class(self) -> str:
        return "done" if self.is_delivered else "pending"

    @property
    def enforced_class(self) -> str:
        return {"enforced": "good", "failed": "bad"}.get(self.status.stage, "pending")

    @property
    def your_end(self) -> str:
        return socket_address(self.link.interface_b.public_ip, self.link.interface_b.public_port)

    @property
    def its_end(self) -> str:
        return socket_address(self.link.interface_a.public_ip, self.link.interface_a.public_port)

    @property
    def bound_to(self) -> str:
        end: Interface = self.link.interface_b
        return socket_address(end.local_ip, end.local_port)


def socket_address(ip: str, port: int) -> str:
    """`[2001:db8::7]:50000`."""
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def load_history(links: list[Link]) -> None:
    """Reads the newest changes of all the Links in one statement; `LinkPanel.changes` asks no more then."""
    newest = BandwidthChange.objects.select_related("actor")[:HISTORY_ROWS]
    prefetch_related_objects(links, Prefetch("changes", queryset=newest, to_attr="newest_changes"))


def is_live(statuses: Iterable[LinkStatus]) -> bool:
    return any(status.stage in UNSETTLED for status in statuses)


# --- what a save means -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LinkValues:
    """What a save can change at one Link; the ends are (address, port, bind address, bind port)."""

    ap: str
    requested_kbit: int
    enforced_kbit: int
    active: bool
    end: tuple[object, ...]


@dataclass(frozen=True)
class Snapshot:
    """What a save can change, taken before and after it."""

    general: tuple[str, str]
    structure: tuple[object, ...]  # H of its hosts: differs when SCION's configuration does
    links: dict[int, LinkValues]


def snapshot(user_as: UserAS) -> Snapshot:
    links = {
        link.pk: LinkValues(
            link.interface_a.AS.isd_as,
            link.bandwidth_kbit,
            link.enforced_kbit,
            link.active,
            _end_of(link.interface_b),
        )
        for link in links_of(user_as)
    }
    hosts = tuple(user_as.hosts.order_by("pk").values_list("pk", "config_version"))
    return Snapshot((user_as.label, user_as.installation_type), hosts, links)


def _end_of(end: Interface) -> tuple[object, ...]:
    return (end.public_ip, end.public_port, end.bind_ip, end.bind_port)


def what_happens_next(before: Snapshot | None, after: Snapshot) -> list[str]:
    """One sentence for each consequence of a save; `before` is None for a new AS."""
    if before == after:
        return ["Nothing was different, so nothing changes."]
    restarts = before is None or before.structure != after.structure
    sentences = [_enforced_next(link, restarts=restarts) for link in _with_new_limits(before, after)]
    if before is None:
        sentences.append("Download the configuration and install it on your host; SCION starts with it.")
    elif restarts:
        sentences.append(
            "The SCION configuration of this AS changed: its host fetches it by itself, or download it here. SCION "
            "restarts there when it is installed."
        )
    return sentences


def _with_new_limits(before: Snapshot | None, after: Snapshot) -> list[LinkValues]:
    """The Links whose limit is another one than before, or counts from now on."""
    old = {} if before is None else before.links
    found = []
    for pk, new in after.links.items():
        was = old.get(pk)
        limits_before = None if was is None else (was.ap, was.requested_kbit, was.enforced_kbit, was.active)
        if limits_before != (new.ap, new.requested_kbit, new.enforced_kbit, new.active) and (
            new.active or was is None or was.requested_kbit != new.requested_kbit
        ):
            found.append(new)
    return found


def _enforced_next(link: LinkValues, *, restarts: bool) -> str:
    if not link.active:
        return f"The link to {link.ap} is inactive: {format_kbit(link.requested_kbit)} count once it is activated."
    what = "blocks the link" if link.enforced_kbit == 0 else f"enforces {format_kbit(link.enforced_kbit)}"
    if link.enforced_kbit < link.requested_kbit:
        what += f" (you asked for {format_kbit(link.requested_kbit)}, above its maximum)"
    return f"{link.ap} {what} within about its polling interval" + ("." if restarts else "; nothing restarts.")


def surprises(before: Snapshot | None, after: Snapshot) -> list[str]:
    """A warning for each bandwidth that was saved now and is allowed but surprising."""
    saved = _with_new_limits(before, after)
    return [f"{link.ap}: {warning}" for link in saved if (warning := bandwidth_warning(link.requested_kbit))]


def statuses_of(links: Iterable[Link], *, now: datetime) -> list[LinkStatus]:
    return [link_status(link, now=now) for link in links]
