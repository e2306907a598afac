"""Words shared by the commands. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from ap_agent.common.problem import Problem
from bandwidth_config import Limits, TimedLimits, format_kbit
from contract.link_info import LinkInfo

TO_USER, FROM_USER = "to the user AS", "from the user AS"


def shown(text: str) -> str:
    """Foreign text for our log: printable, at most 120 characters."""
    clean = "".join(char if char.isprintable() else "?" for char in text)
    return clean if len(clean) <= 120 else clean[:117] + "..."


def timed_lines(links: Mapping[int, LinkInfo], now: datetime) -> list[str]:
    """A line for each link with a running timed limit and its remaining time, and one for all upcoming ones."""
    lines = []
    upcoming: list[TimedLimits] = []
    for number, link in links.items():
        running = next((one for one in link.timed if one.at(now) is not None), None)
        upcoming += [one for one in link.timed if one.begins_at > now]
        if running is not None and link.is_user_as:
            lines.append(f"Link {number}: {_running_words(link, running, now)}")
    if upcoming:
        first = min(one.begins_at for one in upcoming)
        many = f"{len(upcoming)} temporary limits are" if len(upcoming) > 1 else "1 temporary limit is"
        lines.append(f"{many} scheduled, the first at {time_words(first)} (in {duration_words(first - now)}).")
    return lines


def _running_words(link: LinkInfo, running: TimedLimits, now: datetime) -> str:
    following = running.next_change(now)
    step = ""
    if following is not None and following < running.ends_at:
        step = f"; {limits_words(link.limits_at(following))} in {duration_words(following - now)}"
    return (
        f"{limits_words(link.limits_at(now))} now{step}; the temporary limit ends at {time_words(running.ends_at)} "
        f"(in {duration_words(running.ends_at - now)}), then {limits_words(link.limits_at(running.ends_at))}."
    )


def time_words(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def duration_words(duration: timedelta) -> str:
    """`3 d 4 h`, `1 h 12 min`, `4 min 5 s`, `7 s`: the two largest units, rounded down."""
    seconds = max(0, duration // timedelta(seconds=1))
    units = (("d", seconds // 86400), ("h", seconds // 3600 % 24), ("min", seconds // 60 % 60), ("s", seconds % 60))
    first = next((index for index, (_, count) in enumerate(units) if count), 3)
    return " ".join(f"{count} {name}" for name, count in units[first : first + 2] if count) or "0 s"


def ago(duration: timedelta) -> str:
    """`1 min 15 s ago`."""
    return f"{duration_words(duration)} ago"


def limit_words(kbit: int) -> str:
    return "blocked" if kbit == 0 else format_kbit(kbit)


def limits_words(limits: Limits) -> str:
    if limits.is_symmetric:
        return limit_words(limits.to_user_kbit)
    return f"{limit_words(limits.to_user_kbit)} / {limit_words(limits.from_user_kbit)}"


def remote_of(link: LinkInfo) -> str:
    """`192.0.2.11:50000`, `[2001:db8::7]:50000`, or only the address without a port."""
    if link.remote_port is None:
        return str(link.remote_ip)
    address = f"[{link.remote_ip}]" if link.remote_ip.version == 6 else str(link.remote_ip)
    return f"{address}:{link.remote_port}"


def enforced_words(enforced: int, observed: int, total: int, noun: str = "links") -> str:
    """As `1 of 2 links enforced, 1 observed`."""
    return f"{enforced} of {total} {noun} enforced" + (f", {observed} observed" if observed else "")


def problem_lines(problems: Iterable[Problem]) -> list[str]:
    return [f"{one.code} ({one.subject}): {one.message}" for one in problems]
