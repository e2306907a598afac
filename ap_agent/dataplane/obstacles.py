"""Foreign objects that obstruct limits: with the names of our IFBs, at the hooks, around our filters.

A hook that our filters cannot use, or that something stands in front of, fails every link: which packets pass it
depends on routes, rules and neighbours that change without notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ap_agent.common.problem import Problem
from ap_agent.dataplane import tc
from ap_agent.dataplane.devices import DIRECTIONS, FROM_USER, TO_USER, Device, Direction
from ap_agent.dataplane.libbpf import BPF_TCX_EGRESS, BPF_TCX_INGRESS, attached
from ap_agent.dataplane.reading import Observed

_TCX: Final = {TO_USER: BPF_TCX_EGRESS, FROM_USER: BPF_TCX_INGRESS}
_SHOWN: Final = {TO_USER: "to the user ASes", FROM_USER: "from the user ASes"}


def of_names(seen: Observed) -> Iterator[Problem]:
    for name in seen.taken_names:
        message = f"A foreign device is named {name}. Rename it: the limiter needs this name."
        yield Problem("foreign_device", name, message)


def of_hook(seen: Observed, device: Device, direction: Direction) -> Problem | None:
    """Why our filters cannot be attached there."""
    why = None
    if direction == TO_USER and seen.ingress.get(device.ifindex) == "ingress":
        why = 'it has a foreign "ingress" qdisc, which excludes clsact; use clsact there instead'
    for one in seen.foreign.get((device.ifindex, direction), ()):
        if one.chain == 0 and one.pref in (tc.PROGRAM_PREF, tc.ADMITTED_PREF):
            why = f"a foreign filter has preference {one.pref}; move it"
    if why is None:
        return None
    message = f"Packets {_SHOWN[direction]} on {device.name} cannot be limited: {why}."
    return Problem("hook_obstructed", device.name, message)


def in_front(seen: Observed, device: Device) -> Iterator[Problem]:
    """What may take packets before our filters."""
    bond = seen.bonds.get(device.master, device)  # its programs run in its ports
    found = [f"{words} of {one.name}" for one in dict.fromkeys((device, bond)) for words in one.xdp]
    for direction in DIRECTIONS:
        hook, others = tc.HOOK_NAMES[direction], seen.foreign.get((device.ifindex, direction), ())
        first = sorted({one.pref for one in others if one.chain == 0 and one.pref < tc.PROGRAM_PREF})
        found += [f"a filter with preference {one} at {hook}" for one in first]
        if programs := attached(device.ifindex, _TCX[direction]):
            found.append(f"{programs} tcx program{'s' if programs > 1 else ''} at {hook}")
    for one in found:
        message = (
            f"On {device.name} {one} is in front of the limiter; packets that it takes are not limited. Move it, or "
            "leave that device out of `interfaces` if no link uses it."
        )
        yield Problem("hook_obstructed", device.name, message)


def behind(seen: Observed, device: Device) -> Iterator[Problem]:
    """Filters that never see limited packets. At egress their programs see them again, from the IFB. Other chains are
    the business of the filter that jumps there."""
    found = []
    for direction in DIRECTIONS:
        last = {
            one.pref
            for one in seen.foreign.get((device.ifindex, direction), ())
            if one.chain == 0
            and one.pref > tc.ADMITTED_PREF
            and not (direction == TO_USER and one.kind == "bpf" and one.is_direct)
        }
        found += [f"preference {one} at {tc.HOOK_NAMES[direction]}" for one in sorted(last)]
    if found:
        message = f"On {device.name} filters behind ours ({', '.join(found)}) never see limited packets."
        yield Problem("filter_behind", device.name, message)
