"""What a host enforces, in the words of `tc`, without what depends on how it came there.

An index lives at one of two preferences, hashed by whichever bytes it was designed for, in tables and nodes of any
number (ap_agent/indexing.py). Two hosts that got the same links in another order, or of which one was killed on the
way, may differ in these and in nothing else. A table that nothing leads to is no such difference: it is shown.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

from ap_agent.model import FIRST_ROOT_TABLE, INDEX_PREFS

_CHOSEN = re.compile(
    r" fh \S+| order \d+| key ht \S+ bkt \S+|(?<= link )[0-9a-f]+:| index \d+ ref \d+ bind \d+| direct_packets_stat \d+"
)
_HOOKS = ("root", "ingress", "egress")


def meanings() -> list[str]:
    """Every device, qdisc, class and filter of the network namespace that the calling thread is in; sorted."""
    names = [line.split(":")[1].strip().partition("@")[0] for line in _run("ip", "-o", "link").splitlines()]
    qdiscs = _run("tc", "qdisc", "show").splitlines()
    found = [*(f"device {name}" for name in names), *qdiscs]
    for name in names:
        if not any(f" dev {name} " in line and " 0: " not in line for line in qdiscs):
            continue
        found += [f"{name} {line}" for line in _run("tc", "class", "show", "dev", name).splitlines()]
        has_clsact = any(f" ffff: dev {name} " in line for line in qdiscs)
        for hook in _HOOKS if has_clsact else _HOOKS[:1]:
            at = [hook] if hook != "root" else []  # tc's own word "root" asks for something else
            text = re.sub(r"\n\s+", " ", _run("tc", "filter", "show", "dev", name, *at))
            found += [f"{name} {hook} {one}" for one in (*_filters(text), *_stray_tables(text))]
    return sorted(_CHOSEN.sub("", line).strip() for line in found)


def _filters(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.strip() and " ht divisor " not in line and " hash mask " not in line:
            yield re.sub(r"(?<= pref )\d+", lambda found: _first_of_pair(int(found[0])), line)


def _first_of_pair(pref: int) -> str:
    return str(pref & ~1 if pref in INDEX_PREFS else pref)


def _stray_tables(text: str) -> Iterator[str]:
    tables = {int(one, 16) for one in re.findall(r" fh ([0-9a-f]+): ht divisor ", text)}
    led_to = {int(one, 16) for one in re.findall(r" link ([0-9a-f]+):", text)}
    for number in sorted(tables - led_to):
        if number < FIRST_ROOT_TABLE:
            yield f"table {number:x} that nothing leads to"


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout
