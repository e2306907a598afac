"""At which hooks of the interfaces programs sit, and where they cannot. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ap_agent.model import (
    ADMISSION_PREF,
    EGRESS_HOOK,
    FROM_USER_SLOT,
    INGRESS_HOOK,
    Device,
    Finding,
    Handle,
    Problem,
    TcState,
    Tree,
    is_admission,
)

Hook = tuple[int, Handle]  # of an interface, by number
CODE = "whole_datagrams_unavailable"


def slots_of(ifindex: int, *, has_egress: bool, has_ingress: bool) -> dict[Handle, int]:
    """At which hooks of an interface which program sits. What comes from the users shares one tree, and so one program;
    of what goes to them each interface has its own."""
    slots = {INGRESS_HOOK: FROM_USER_SLOT} if has_ingress else {}
    return slots | ({EGRESS_HOOK: ifindex} if has_egress else {})


def obstructed_hooks(state: TcState) -> dict[Hook, str]:
    """Where no program of ours can sit, and why, in words that end with what to do."""
    found: dict[Hook, str] = {}
    for ifindex, tree in state.trees.items():
        if tree.ingress == "ingress":
            found[ifindex, EGRESS_HOOK] = (
                'it has an "ingress" qdisc that is not ours, which has no hook for what is sent; let its owner use '
                '"clsact" instead'
            )
        for hook in (INGRESS_HOOK, EGRESS_HOOK):
            if _is_taken(tree, hook):
                found[ifindex, hook] = (
                    f"a filter that is not ours sits on preference {ADMISSION_PREF} at {hook}; move it to another one"
                )
    return found


def _is_taken(tree: Tree, hook: Handle) -> bool:
    at = [one for one in tree.filters if (one.hook, one.chain, one.pref) == (hook, 0, ADMISSION_PREF)]
    return any(one.handle and not is_admission(one) for one in at)


def obstructions(devices: Iterable[Device], obstructed: Mapping[Hook, str]) -> tuple[Finding, ...]:
    """What to say of these interfaces: the limits hold, only fragments do not get through whole."""
    directions = {EGRESS_HOOK: "to the user ASes", INGRESS_HOOK: "from the user ASes"}
    return tuple(
        Finding(
            Problem(
                CODE,
                device.name,
                f"Datagrams {words} are not admitted whole on {device.name}: {obstructed[device.ifindex, hook]}.",
            )
        )
        for device in devices
        for hook, words in directions.items()
        if (device.ifindex, hook) in obstructed
    )
