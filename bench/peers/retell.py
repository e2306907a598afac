"""What a host's traffic control looks like, told again as lines for `tc -batch`.

Read from iproute2's own output, not from the engine: so the copy has the same objects whatever way they were made.
Handles of filters inside hash tables are kept; those in the list of a preference are left to the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from measuring.netns import Namespace

OWN_TABLE_LIMIT = 0x800  # from here on the kernel numbers the lists of preferences


class RetellError(RuntimeError):
    """`tc` shows something that this module cannot say again."""


def retell(host: Namespace, devices: Sequence[str]) -> list[str]:
    """Lines that make the same objects on devices of the same names which have none yet."""
    lines: list[str] = []
    for dev in devices:
        qdiscs = _show(host, "qdisc", dev)
        lines += [line for one in qdiscs if (line := _qdisc(dev, one, is_leaf=False))]
        lines += _classes(host, dev)
        lines += [line for one in qdiscs if (line := _qdisc(dev, one, is_leaf=True))]
        for hook in ("parent 1:", "parent 3:", "ingress"):
            if _has(qdiscs, hook):
                text = host.run("tc", "filter", "show", "dev", dev, *hook.split(), timeout_s=120)
                lines += filters(text, dev, hook)
    return lines


def _show(host: Namespace, what: str, dev: str) -> list[str]:
    return host.run("tc", "-d", what, "show", "dev", dev, timeout_s=120).splitlines()


def _has(qdiscs: Sequence[str], hook: str) -> bool:
    wanted = "clsact" if hook == "ingress" else f"htb {hook.split()[1]} root"
    return any(wanted in one for one in qdiscs)


def _qdisc(dev: str, line: str, *, is_leaf: bool) -> str:
    """Empty for the kernel's own, and for those that are not asked for."""
    if match := re.match(r"qdisc htb (\w+:) root .*default (\w+)", line):
        return "" if is_leaf else f"qdisc add dev {dev} root handle {match[1]} htb default {match[2]}"
    if line.startswith("qdisc clsact ffff:"):
        return "" if is_leaf else f"qdisc add dev {dev} clsact"
    if match := re.match(r"qdisc bfifo (\w+:) parent (\w+:\w+) limit (\w+)", line):
        return f"qdisc add dev {dev} parent {match[2]} handle {match[1]} bfifo limit {match[3]}" if is_leaf else ""
    if re.match(r"qdisc \w+ 0: ", line):
        return ""
    raise RetellError(line)


def _classes(host: Namespace, dev: str) -> list[str]:
    """Parents first: those under the root, then the others."""
    found = [_class(dev, line) for line in _show(host, "class", dev) if line.startswith("class htb")]
    return [line for depth in (0, 1) for level, line in found if level == depth]


def _class(dev: str, line: str) -> tuple[int, str]:
    match = re.match(r"class htb (\w+):(\w+) (root|parent (\w+:\w+)) ", line)
    if match is None:
        raise RetellError(line)
    told = f"class add dev {dev} parent {match[4] or match[1] + ':'} classid {match[1]}:{match[2]} htb"
    for word in ("rate", "ceil", "burst", "cburst", "prio", "quantum"):
        if value := re.search(rf" {word} (\w+)", line):
            told += f" {word} {value[1]}"
    return int(match[4] is not None), told


def filters(text: str, dev: str, hook: str) -> list[str]:
    """The u32 filters of one hook from `tc filter show`; tables first, because nodes point to them."""
    tables, nodes = [], []
    for block in re.split(r"\n(?=filter )", text.strip()):
        head = re.match(r"filter (?:parent \S+ )?protocol (\S+) pref (\d+) u32 chain (\d+) ?(?:fh (\S+))? ?(.*)", block)
        if head is None:
            raise RetellError(block[:200])
        protocol, pref, chain, handle, rest = head.groups()
        start = f"filter add dev {dev} {hook} chain {chain} protocol {protocol} pref {pref}"
        if divisor := re.match(r"ht divisor (\d+)", rest):
            if _table_of(handle) < OWN_TABLE_LIMIT:
                tables.append(f"{start} handle {handle} u32 divisor {divisor[1]}")
        elif handle:
            nodes.append(f"{start} {_node(handle, block)}")
    return [*tables, *nodes]


def _table_of(handle: str) -> int:
    return int(handle.partition(":")[0], 16)


def _node(handle: str, block: str) -> str:
    table, bucket, _ = handle.split(":")
    told = "u32" if _table_of(handle) >= OWN_TABLE_LIMIT else f"handle {handle} u32 ht {table}:{bucket}:"
    return " ".join([told, *_parts(block)])


def _parts(block: str) -> Iterator[str]:
    matches = re.findall(r"match (\w+)/(\w+) at (\S+)", block)
    for value, mask, at in matches or [("0", "0", "0")]:  # tc sends no selector without a match; the kernel wants one
        yield f"match u32 0x{value} 0x{mask} at {at}"
    if link := re.search(r" link (\S+)", block):
        yield f"link {link[1]}"
    if key := re.search(r"hash mask (\w+) at (\S+)", block):
        yield f"hashkey mask 0x{key[1]} at {key[2]}"
    if re.search(r"^\s+offset ", block, flags=re.MULTILINE):
        raise RetellError("a filter with a variable offset")
    if flow := re.search(r"flowid (\w+:\w+)", block):
        yield f"flowid {flow[1]}"
    if action := re.search(r"mirred \(Egress Redirect to device (\S+)\)", block):
        yield f"action mirred egress redirect dev {action[1]}"
