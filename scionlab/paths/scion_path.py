"""Parses the output of SCION's tools (v0.15.1): `scion showpaths`, `scion traceroute`. Pure.

A path has three forms: the JSON of `showpaths`, its text (`Hops: [17-ffaa:1:1 1>21 ...]`), and sequences
(`17-ffaa:1:1#0,1 17-ffaa:0:1107#21,11`), one path a line. A hop is an AS, so n hops have n - 1 links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from bandwidth_config import RuleError, format_number
from scionlab.platform.notation import strict_json
from scionlab.platform.notation.isd_as import MAX_ISD, format_isd_as, parse_isd_as

MAX_BYTES: Final = 65_536
MAX_PATHS: Final = 50
MAX_HOPS: Final = 64
MAX_INTERFACE: Final = 65_535  # 16 bits in a hop field; this service uses at most 4094
_MAX_BGP_AS: Final = 2**32 - 1  # SCION writes these in decimal: 64-559
_LONGEST_SHOWN: Final = 40

_PEOPLE: Final = "Hops: ["
_BGP: Final = re.compile(r"([1-9][0-9]{0,4})-([1-9][0-9]{0,9})", re.ASCII)
_HOP: Final = re.compile(r"([^#]+)#([0-9]{1,9})(?:,([0-9]{1,9}))?", re.ASCII)
_STEP: Final = re.compile(r"([0-9]{1,9})>([0-9]{1,9})", re.ASCII)
_ANSWER: Final = re.compile(r"([^\s,]+),\S+ IfID=([0-9]{1,9})((?: (?:\*|[0-9]{1,9}(?:\.[0-9]{1,9})?ms))+)", re.ASCII)
_PREDICATE: Final = "Write hops as 17-ffaa:0:1107#21,11: ISD-AS#in,out."


class PathInterface(NamedTuple):
    isd: int
    as_id: int
    interface_id: int

    @property
    def isd_as(self) -> str:
        is_bgp = self.as_id <= _MAX_BGP_AS
        return f"{self.isd}-{self.as_id}" if is_bgp else format_isd_as(self.isd, self.as_id)

    def __str__(self) -> str:
        return f"{self.isd_as}#{self.interface_id}"


class PathLink(NamedTuple):
    """One link in the direction of travel: the interface it leaves from, and the one it arrives at."""

    leaves: PathInterface
    enters: PathInterface


Path = tuple[PathLink, ...]


class Probe(NamedTuple):
    """One line of `scion traceroute`. `at` is None for a timeout without an interface; `rtt_ms` is the shortest round
    trip, None without a response."""

    at: PathInterface | None
    rtt_ms: float | None


def parse_paths(text: str) -> list[Path]:
    """Return at least one path. Raises `RuleError` (`path_too_long`, `path_too_many`, `path_hops`, `path_not_json`,
    `path_none`, `path_invalid`), which names the path, the hop and, in text, the character."""
    text = _bounded(text, "The paths have", "Print fewer paths: scion showpaths -m 10.")
    if text.lstrip().startswith("{"):
        rows = _object(text, "The list of paths").get("paths") or []
        if not isinstance(rows, list):
            raise RuleError("path_invalid", '"paths" is not a list. Paste what scion showpaths --format json prints.')
        found = rows
    else:
        lines = text.split("\n")
        is_for_people = _PEOPLE in text
        found = [one for one in lines if (_PEOPLE in one if is_for_people else one.strip())]
    if not found:
        remedy = "Paste what scion showpaths prints for another AS, or sequences, one path a line."
        raise RuleError("path_none", f"There is no path in the text. {remedy}")
    if len(found) > MAX_PATHS:
        raise RuleError("path_too_many", f"{len(found)} paths are more than {MAX_PATHS}. Leave out the others.")
    return [_of_json(one, n) if isinstance(one, dict) else _of_line(one, n) for n, one in enumerate(found, 1)]


def _bounded(text: str, subject: str, remedy: str) -> str:
    text = text.replace("\r\n", "\n")  # as browsers send it
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        sizes = f"{format_number(size)} bytes, more than {format_number(MAX_BYTES)}"
        raise RuleError("path_too_long", f"{subject} {sizes}. {remedy}")
    return text


def _object(text: str, subject: str) -> dict[str, Any]:
    try:
        found = strict_json.load(text, subject)
    except strict_json.StrictJSONError as exc:
        raise RuleError("path_not_json", f"{exc} Paste all of the output, unchanged.") from exc
    return dict(found)


def _check_hops(count: int, n: int) -> None:
    if count < 2:
        raise RuleError("path_hops", f"Path {n} has no link between two ASes. A path has 2 to {MAX_HOPS} hops.")
    if count > MAX_HOPS:
        raise RuleError("path_hops", f"Path {n} has {count} hops, more than {MAX_HOPS}. Leave out this path.")


def _of_json(path: dict[str, Any], n: int) -> Path:
    hops = path.get("hops")
    if not isinstance(hops, list) or len(hops) % 2:
        rule = '"hops" is not a list with two interfaces for each link'
        raise RuleError("path_invalid", f"Path {n}: {rule}. Paste the output unchanged.")
    _check_hops(len(hops) // 2 + 1 if hops else 0, n)
    ends = [_of_member(one, "interface", f"Path {n}, hop {(i + 1) // 2 + 1}") for i, one in enumerate(hops)]
    for i in range(1, len(ends) - 1, 2):
        if ends[i][:2] != ends[i + 1][:2]:
            rule = f"{ends[i]} and {ends[i + 1]} are interfaces of two ASes"
            raise RuleError("path_invalid", f"Path {n}, hop {i // 2 + 2}: {rule}. Paste the output unchanged.")
    return tuple(PathLink(*pair) for pair in zip(ends[::2], ends[1::2], strict=True))


def _of_member(hop: object, key: str, where: str) -> PathInterface:
    values = (hop.get("isd_as"), hop.get(key)) if isinstance(hop, dict) else (None, None)
    isd_as, number = values
    if not isinstance(isd_as, str) or not isinstance(number, int) or isinstance(number, bool):
        rule = f'"isd_as" as text and "{key}" as a number are missing'
        raise RuleError("path_invalid", f"{where}: {rule}. Paste the output unchanged.")
    return _interface(isd_as, number, where)


def _interface(isd_as: str, number: int, where: str) -> PathInterface:
    bgp = _BGP.fullmatch(isd_as)
    try:
        if bgp is not None and int(bgp[1]) <= MAX_ISD and int(bgp[2]) <= _MAX_BGP_AS:
            isd, as_id = int(bgp[1]), int(bgp[2])
        else:
            isd, as_id = parse_isd_as(isd_as)
    except RuleError as exc:
        raise RuleError("path_invalid", f"{where}: {exc.message}") from exc
    if not 1 <= number <= MAX_INTERFACE:
        rule = f"is outside 1 to {MAX_INTERFACE}" + (" (0 stands for any interface)" if number == 0 else "")
        raise RuleError("path_invalid", f"{where}: interface {number} {rule}. Write the number of the interface.")
    return PathInterface(isd, as_id, number)


# --- lines ------------------------------------------------------------------------------------------------------


class _Word(NamedTuple):
    text: str
    where: str

    def refused(self, rule: str, remedy: str) -> RuleError:
        shown = self.text if len(self.text) <= _LONGEST_SHOWN else f"{self.text[: _LONGEST_SHOWN - 3]}..."
        return RuleError("path_invalid", f'{self.where}: "{shown}" {rule}. {remedy}')


def _of_line(line: object, n: int) -> Path:
    if not isinstance(line, str):
        raise RuleError("path_invalid", f"Path {n} is not an object. Paste the output unchanged.")
    begin, end = 0, len(line)
    if _PEOPLE in line:
        begin = line.index(_PEOPLE) + len(_PEOPLE)
        end = line.find("]", begin)
        if end < 0:
            raise RuleError("path_invalid", f'Path {n}: "]" is missing after "Hops: [". Paste the whole line.')
    is_arrows = ">" in line[begin:end]
    found = list(re.finditer(r"\S+", line[begin:end]))
    _check_hops(len(found) // 2 + 1 if is_arrows else len(found), n)
    words = []
    for i, one in enumerate(found):
        hop = (i + 1) // 2 + 1 if is_arrows else i + 1
        words.append(_Word(one[0], f"Path {n}, hop {hop}, character {begin + one.start() + 1}"))
    return tuple(_of_arrows(words) if is_arrows else _of_sequence(words))


def _of_arrows(words: list[_Word]) -> Iterator[PathLink]:
    """`17-ffaa:1:1 1>21 17-ffaa:0:1107`"""
    if len(words) % 2 == 0:
        raise words[-1].refused("is not followed by an AS", "Paste the whole line.")
    for here, step, there in zip(words[::2], words[1::2], words[2::2], strict=False):
        ids = _STEP.fullmatch(step.text)
        if ids is None:
            raise step.refused("is not a pair of interfaces", "Write it as 1>21.")
        yield PathLink(_interface(here.text, int(ids[1]), step.where), _interface(there.text, int(ids[2]), there.where))


def _of_sequence(words: list[_Word]) -> Iterator[PathLink]:
    """`17-ffaa:1:1#0,1 17-ffaa:0:1107#21,0`: in and out. Before the first link and after the last, any number or
    none."""
    before: PathInterface | None = None
    for i, word in enumerate(words):
        parts = _HOP.fullmatch(word.text)
        if parts is None:
            raise word.refused("is not a hop", _PREDICATE)
        isd_as, first, second = parts.groups()
        if second is None and 0 < i < len(words) - 1:
            raise word.refused("has one interface of two", _PREDICATE)
        if before is not None:
            yield PathLink(before, _interface(isd_as, int(first), word.where))
        if i < len(words) - 1:
            before = _interface(isd_as, int(first if second is None else second), word.where)


# --- traceroute -------------------------------------------------------------------------------------------------


def parse_traceroute(text: str) -> list[Probe]:
    """Parse JSON or text, in the order of the path; at least one line. Raises `RuleError` (`path_too_long`,
    `path_hops`, `path_not_json`, `path_none`, `path_invalid`)."""
    text = _bounded(text, "The traceroute has", "Paste the output of one run.")
    if text.lstrip().startswith("{"):
        hops = _object(text, "The traceroute").get("hops") or []
        if not isinstance(hops, list):
            raise RuleError("path_invalid", 'Traceroute: "hops" is not a list. Paste the output unchanged.')
    else:
        hops = [one.strip() for one in text.split("\n") if re.match(r"\s*[0-9]+ ", one, re.ASCII)]
    if not hops:
        raise RuleError("path_none", "There is no hop in the traceroute. Paste what scion traceroute prints.")
    if len(hops) > 2 * (MAX_HOPS - 1):
        raise RuleError(
            "path_hops", f"The traceroute has {len(hops)} lines, more than {2 * (MAX_HOPS - 1)}. Paste one run."
        )
    return [_probe(one, f"Traceroute, line {i}") for i, one in enumerate(hops, 1)]


def _probe(hop: object, where: str) -> Probe:
    if not isinstance(hop, str):
        at = _of_member(hop, "interface_id", where)
        times = hop.get("round_trip_times") or [] if isinstance(hop, dict) else []
        if not isinstance(times, list) or not all(_is_time(one) for one in times):
            raise RuleError("path_invalid", f"{where}: round_trip_times are not milliseconds. Paste it unchanged.")
        return Probe(at, min(map(float, times), default=None))
    _, _, rest = hop.partition(" ")
    if rest.startswith("??"):
        return Probe(None, None)
    found = _ANSWER.fullmatch(rest)
    if found is None:
        raise _Word(hop, where).refused("is not a line of scion traceroute", "Paste the output unchanged.")
    answers = [float(one.removesuffix("ms")) for one in found[3].split() if one != "*"]
    return Probe(_interface(found[1], int(found[2]), where), min(answers, default=None))


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9
