"""What the codes of agents' problems mean for an administrator: in words, with the remedy (docs/agent.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SERVICE, TRUST, KERNEL, FOREIGN, LINK, USAGE = "service", "trust", "kernel", "foreign", "link", "usage"
REMOVED, LIMITER = "removed", "limiter"
LIMITER_SILENT: Final = "limiter_silent"

KINDS: Final = {
    REMOVED: "its operator removed the limits",
    LIMITER: "its limiter does not work",
    SERVICE: "does not get or take the newest configuration",
    TRUST: "does not trust the configuration",
    KERNEL: "the kernel rejects the limits",
    FOREIGN: "something foreign is in the way",
    LINK: "cannot limit single links",
    USAGE: "cannot report all traffic",
}


@dataclass(frozen=True)
class Explanation:
    """`kind` is one of `KINDS`; `is_warning`: the limits are in force all the same; `voids`: nothing that the receipt
    says counts as in force.

    `beside` is what stands beside the state of each Link that the problem concerns, with {name} for the attachment
    point; empty where the limits do not depend on it, or where the Link itself is in error.
    """

    kind: str
    meaning: str
    remedy: str
    is_warning: bool = False
    beside: str = ""
    voids: bool = False

    @property
    def remark(self) -> str:
        return self.beside or ("" if self.is_warning else _BESIDE.get(self.kind, ""))


_BESIDE: Final = {
    LIMITER: "The limiter of {name} does not work",
    SERVICE: "The agent of {name} does not get or take the newest configuration",
    TRUST: "The agent of {name} does not trust the newest configuration",
    KERNEL: "The agent of {name} cannot make its kernel agree with all limits",
    FOREIGN: "Something foreign is in the way at {name}",
}


EXPLANATIONS: Final[dict[str, Explanation]] = {
    "service_unreachable": Explanation(
        SERVICE,
        "The agent got no answer from this service.",
        "Nothing, if it passes. Else look at the address, the certificate and the proxy.",
    ),
    "auth_refused": Explanation(
        SERVICE,
        "This service refuses the host's credentials.",
        "Compare the host id and secret with the host's page, or enrol the host again.",
    ),
    "bundle_invalid": Explanation(
        SERVICE,
        "The configuration breaks a rule of its format.",
        "Update the agent if the message says so; else it is a fault of this service.",
    ),
    "state_unusable": Explanation(
        SERVICE,
        "The agent's state folder is full, read-only or damaged.",
        "Make room there or repair the folder.",
    ),
    "no_as": Explanation(
        SERVICE,
        "This service has no AS for the host.",
        "Restore the host's record. If it is meant: stop the agent and run its reset.",
    ),
    "receipt_failed": Explanation(
        SERVICE,
        "This service did not take the agent's receipt, so pages show an older state.",
        "Look at this service's log; the limits are in force.",
        is_warning=True,
    ),
    "not_enrolled": Explanation(
        TRUST,
        "The agent knows no key of this service.",
        "Make an enrolment token on the host's page and enrol the host.",
    ),
    "not_signed": Explanation(
        TRUST,
        "The configuration that it got has no signature.",
        "Find out who answers at the service's address.",
    ),
    "wrong_signature": Explanation(
        TRUST,
        "The configuration was changed after it was signed.",
        "Find out who stands between the service and the host.",
    ),
    "unknown_key": Explanation(
        TRUST,
        "The configuration is signed with keys that the host does not trust.",
        "If the service was set up anew or a key was revoked meanwhile: enrol the host again.",
    ),
    "key_expired": Explanation(
        TRUST,
        "The signing key's time is over, by the host's clock.",
        "Correct the clock if it is wrong; else enrol the host again.",
    ),
    "key_revoked": Explanation(
        TRUST,
        "The configuration is signed with a revoked key.",
        "Somebody uses a stolen key, or this service came back from an old backup.",
    ),
    "version_older": Explanation(
        TRUST,
        "This service offers something older than the host has.",
        "After a restored backup: run manage.py raise_generation.",
    ),
    "key_expires_soon": Explanation(
        TRUST,
        "The last key that the host trusts ends within 30 days.",
        "Rotate the signing key while the host can still follow.",
        is_warning=True,
    ),
    "kernel_refused": Explanation(
        KERNEL, "The kernel refused an operation.", "It is tried again; if it stays, the message has the error number."
    ),
    "apply_failed": Explanation(
        KERNEL, "An operation in the kernel failed.", "It is tried again; if it stays, the message has the operation."
    ),
    "verify_failed": Explanation(
        KERNEL,
        "After applying, the kernel differs from what is wanted (drift).",
        "Look for another program on the host that changes tc.",
    ),
    "repeatedly_changed": Explanation(
        KERNEL,
        "Another program keeps changing what the agent repairs (drift).",
        "Find that program, the message names the device, and keep it off.",
    ),
    "not_permitted": Explanation(
        KERNEL, "The limiter lacks CAP_NET_ADMIN.", "Start it through its systemd unit, or as root."
    ),
    "foreign_state": Explanation(
        FOREIGN,
        "Something that is not the agent's stands in the way.",
        "Decide on the host who owns it; the agent deletes nothing of others.",
    ),
    "agent_failed": Explanation(
        KERNEL, "The host's kernel cannot do it at all.", "Load the kernel module that the message names."
    ),
    "internal_error": Explanation(KERNEL, "A bug of the agent.", "Report it with the traceback in the host's log."),
    "settings_invalid": Explanation(
        SERVICE,
        "The agent's configuration or credentials cannot be used.",
        "Correct the named key, or enrol the host again; then reload the agent.",
    ),
    "health_unwritable": Explanation(
        SERVICE, "The health file cannot be written.", "Repair the folder run_dir on the host.", is_warning=True
    ),
    "usage_unread": Explanation(
        USAGE, "The kernel's counters cannot be read, so use is unknown.", "If it stays, the message says why.", True
    ),
    "usage_unwritable": Explanation(
        USAGE, "Samples of use cannot be stored on the host.", "Make room in the agent's state folder.", True
    ),
    "usage_failed": Explanation(
        USAGE, "This service did not take samples of use; they are kept.", "Nothing, if it passes.", True
    ),
    "usage_refused": Explanation(
        USAGE,
        "This service will never take a batch of samples.",
        "It is a fault of one of both: look at the log.",
        True,
    ),
    "usage_dropped": Explanation(
        USAGE,
        "Samples of use were given up, the oldest first.",
        "Look why uploads fail; the limits are in force.",
        True,
    ),
    "metrics_unavailable": Explanation(
        USAGE, "The agent's metrics cannot be served.", "Correct metrics_listen or metrics_file, then reload.", True
    ),
    "own_address": Explanation(LINK, "The link's remote address is the host's own.", "Correct the link's address."),
    "ambiguous_match": Explanation(
        LINK, "Two links match the same packets.", "Give them different ports or addresses."
    ),
    "interface_missing": Explanation(
        LINK, "The agent was given an interface that does not exist.", "Create it, or correct interfaces."
    ),
    "limits_removed": Explanation(
        REMOVED,
        "The operator removed the limits: nothing is enforced any more.",
        "If it is not meant: install and start the agent on the host again.",
    ),
    "clock_skewed": Explanation(
        SERVICE,
        "The host's clock differs from this service's by more than 5 s: temporary limits begin and end by it.",
        "Let the host keep its time by NTP (timedatectl set-ntp true).",
        is_warning=True,
    ),
    "links_vanished": Explanation(
        SERVICE,
        "The newest configuration lacks more than half of the host's links, so the agent keeps the one before.",
        "If it is meant: wait ten minutes, or accept it on the host. Else restore the links here.",
        is_warning=True,
        beside="The agent of {name} holds back a configuration that lacks most of its links",
    ),
    "foreign_device": Explanation(FOREIGN, "A device named like ours is not ours.", "Rename or remove it."),
    "hook_obstructed": Explanation(
        FOREIGN,
        "Something foreign stands in front of our program: what it takes is not limited.",
        "Remove it there, or let it leave packets of the links alone; the message names it.",
        is_warning=True,
        beside="Something foreign stands in front at {name}: what it takes is not limited",
    ),
    "filter_behind": Explanation(
        FOREIGN,
        "A foreign filter stands behind our program, and does not act on limited packets.",
        "Nothing for the limits. Move it in front if it is to act on packets of the links.",
        is_warning=True,
    ),
    LIMITER_SILENT: Explanation(
        LIMITER,
        "The limiter does not answer its agent, so what is in force is not known.",
        "Start scionlab-bw-limiter on the host and read its log. The limits that were set stay in the kernel.",
        voids=True,
    ),
    "document_refused": Explanation(
        LIMITER,
        "The limiter refuses the document that its agent handed over, and keeps the one before.",
        "The message says why; if the host was enrolled anew, let the limiter trust the new keys.",
        beside="The limiter of {name} refuses the newest configuration",
    ),
    "kernel_unreadable": Explanation(
        LIMITER,
        "The limiter cannot read or change the kernel; the limits that it set stay.",
        "The message says why; the limiter tries again by itself.",
        beside="The limiter of {name} cannot read its kernel",
    ),
    "no_bpf_right": Explanation(
        LIMITER,
        "The limiter lacks CAP_BPF or CAP_NET_ADMIN.",
        "Start it through its systemd unit, or as root.",
        voids=True,
    ),
    "kernel_too_old": Explanation(
        LIMITER,
        "The host's kernel is too old for the limiter.",
        "Install Linux 5.12 or newer with cls_bpf and IFB; the message says what is missing.",
        voids=True,
    ),
    "program_refused": Explanation(
        LIMITER,
        "The kernel refused the limiter's program.",
        "Read the message, and install a package that fits the kernel.",
        voids=True,
    ),
    "previous_engine": Explanation(
        KERNEL,
        "Queues and filters of the agent before this one are still in the kernel.",
        "The message names what could not be removed; remove it by hand.",
        is_warning=True,
        beside="At {name} limits of an older agent are still in the kernel",
    ),
    # What only agents with the first engine say (docs/adr/0028): readable as long as there are some.
    "foreign_root": Explanation(
        FOREIGN,
        "A foreign root qdisc is where ours belongs.",
        "Decide who owns the interface; remove the other one by hand.",
    ),
    "foreign_in_root": Explanation(
        FOREIGN,
        "A foreign class or filter is inside our root qdisc.",
        "Decide who owns the interface; remove the other one by hand.",
    ),
    "foreign_filter": Explanation(
        FOREIGN, "A foreign filter is at a place of ours.", "Move it behind preference 160 on the host."
    ),
    "foreign_filter_in_front": Explanation(
        FOREIGN,
        "A foreign filter stands in front of ours: what it catches is not limited.",
        "Move it behind preference 160 on the host.",
        is_warning=True,
        beside="A foreign filter stands in front at {name}: what it catches is not limited",
    ),
    "foreign_uses_ifb": Explanation(FOREIGN, "Somebody redirects traffic to our device.", "Remove that redirect."),
    "whole_datagrams_unavailable": Explanation(
        KERNEL,
        "Fragmented datagrams are not admitted whole, although the host's configuration asks for it.",
        "The message says what is missing on the host; all limits are in force as without that option.",
        is_warning=True,
    ),
    "no_route": Explanation(LINK, "No route to the user AS.", "Correct the route on the host, or the link's address."),
    "route_loopback": Explanation(
        LINK, "The user AS's address leads back to the host itself.", "Correct the route, or the link's address."
    ),
    "route_blackhole": Explanation(
        LINK, "The user AS's address is routed into a black hole.", "Correct the route, or the link's address."
    ),
    "ambiguous_interface": Explanation(
        LINK,
        "Several interfaces could have this link-local address.",
        "Set interfaces in the agent's configuration, or give the link a local address.",
    ),
    "unmanaged_interface": Explanation(
        LINK,
        "The link leaves by an interface that the agent was not given.",
        "Add it to interfaces in the agent's configuration.",
    ),
    "too_many_alike": Explanation(
        LINK, "Hundreds of links that nothing tells apart.", "Spread them over more addresses or ports."
    ),
    "local_address_missing": Explanation(
        LINK, "The host does not have the link's local address.", "Add the address, or correct the bind IP here."
    ),
}

UNKNOWN: Final = Explanation(
    KERNEL, "The agent is newer than this service: it reports something not known here.", "Read its message."
)
