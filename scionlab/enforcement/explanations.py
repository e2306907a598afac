"""Explanations of agents' problem codes for administrators, with remedies (docs/agent.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SERVICE, TRUST, KERNEL, FOREIGN, LINK, USAGE = "service", "trust", "kernel", "foreign", "link", "usage"
REMOVED, LIMITER = "removed", "limiter"
LIMITER_SILENT: Final = "limiter_silent"

KINDS: Final = {
    REMOVED: "the operator removed the limits",
    LIMITER: "the limiter does not work",
    SERVICE: "the agent does not get or accept the newest configuration",
    TRUST: "the agent does not trust the configuration",
    KERNEL: "the kernel rejects the limits",
    FOREIGN: "foreign traffic control is in the way",
    LINK: "single links cannot be limited",
    USAGE: "not all traffic is reported",
}


@dataclass(frozen=True)
class Explanation:
    """`kind` is one of `KINDS`; `is_warning`: the limits are in force anyway; `voids`: nothing in the receipt counts as
    in force. `beside` is shown with the state of each Link that the problem concerns, with {name} for the attachment
    point; empty if limits do not depend on it, or if the Link itself has the error."""

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
    SERVICE: "The agent of {name} does not get or accept the newest configuration",
    TRUST: "The agent of {name} does not trust the newest configuration",
    KERNEL: "The kernel of {name} rejects some limits",
    FOREIGN: "Foreign traffic control is in the way at {name}",
}


EXPLANATIONS: Final[dict[str, Explanation]] = {
    "service_unreachable": Explanation(
        SERVICE,
        "The agent gets no response from this service.",
        "No action needed if it is temporary. Otherwise check the URL, the certificate and the proxy.",
    ),
    "auth_refused": Explanation(
        SERVICE,
        "This service refuses the host's credentials.",
        "Compare the host id and secret with the page of the host, or enrol the host again.",
    ),
    "bundle_invalid": Explanation(
        SERVICE,
        "The configuration breaks a rule of its format.",
        "Update the agent if the message says so; else it is a fault of this service.",
    ),
    "state_unusable": Explanation(
        SERVICE,
        "The agent's state folder is full, read-only or damaged.",
        "Free disk space, or repair the folder.",
    ),
    "no_as": Explanation(
        SERVICE,
        "This service has no AS for the host.",
        "Restore the record of the host. If this is intended, stop the agent and run its reset.",
    ),
    "receipt_failed": Explanation(
        SERVICE,
        "This service did not accept the receipt of the agent, so pages show an older state.",
        "Check the log of this service. The limits stay enforced.",
        is_warning=True,
    ),
    "not_enrolled": Explanation(
        TRUST,
        "The agent has no key of this service.",
        "Create an enrolment token on the page of the host and enrol the host.",
    ),
    "not_signed": Explanation(
        TRUST,
        "The received configuration has no signature.",
        "Check which server answers at the URL of the service.",
    ),
    "wrong_signature": Explanation(
        TRUST,
        "The configuration was changed after it was signed.",
        "Check the network path between the service and the host for a proxy or an attacker.",
    ),
    "unknown_key": Explanation(
        TRUST,
        "The configuration is signed with keys that the host does not trust.",
        "If the service was reinstalled or a key was revoked, enrol the host again.",
    ),
    "key_expired": Explanation(
        TRUST,
        "The signing key has expired, by the clock of the host.",
        "Correct the clock if it is wrong; otherwise enrol the host again.",
    ),
    "key_revoked": Explanation(
        TRUST,
        "The configuration is signed with a revoked key.",
        "A stolen key is in use, or this service was restored from an old backup.",
    ),
    "version_older": Explanation(
        TRUST,
        "This service offers a configuration older than that of the host.",
        "After a restored backup: run manage.py raise_generation.",
    ),
    "version_jump": Explanation(
        TRUST,
        "This service offers a configuration whose generation is far ahead of that of the host.",
        "Correct the generation of this service: the host would refuse every configuration after this one.",
    ),
    "key_expires_soon": Explanation(
        TRUST,
        "The last key that the host trusts expires within 30 days.",
        "Rotate the signing key before it expires.",
        is_warning=True,
    ),
    "apply_failed": Explanation(
        KERNEL,
        "An operation in the kernel failed.",
        "The operation is retried. If the problem persists, see the operation in the message.",
    ),
    "verify_failed": Explanation(
        KERNEL,
        "After applying the limits, the state of the kernel is different (drift).",
        "Check for another program on the host that changes traffic control.",
    ),
    "repeatedly_changed": Explanation(
        KERNEL,
        "Another program keeps overwriting the limits (drift).",
        "Stop that program on the device named in the message.",
    ),
    "not_permitted": Explanation(
        KERNEL, "The limiter lacks CAP_NET_ADMIN.", "Start it through its systemd unit, or as root."
    ),
    "agent_failed": Explanation(
        KERNEL, "The kernel of the host lacks a required feature.", "Load the kernel module named in the message."
    ),
    "internal_error": Explanation(
        KERNEL, "A bug in the agent.", "Report it with the traceback from the log of the host."
    ),
    "settings_invalid": Explanation(
        SERVICE,
        "The configuration or the credentials of the agent are invalid.",
        "Correct the setting named in the message, or enrol the host again; then reload the agent.",
    ),
    "health_unwritable": Explanation(
        SERVICE, "The health file cannot be written.", "Repair the folder run_dir on the host.", is_warning=True
    ),
    "usage_unwritable": Explanation(
        USAGE,
        "Traffic samples cannot be stored on the host.",
        "Free disk space in the state folder of the agent.",
        True,
    ),
    "usage_failed": Explanation(
        USAGE,
        "This service did not accept traffic samples; the agent keeps them.",
        "No action needed if it is temporary.",
        True,
    ),
    "usage_refused": Explanation(
        USAGE,
        "This service permanently rejected a batch of samples.",
        "This is a bug in the agent or the service; check the log.",
        True,
    ),
    "usage_dropped": Explanation(
        USAGE,
        "Traffic samples were discarded, the oldest first.",
        "Check why uploads fail. The limits stay enforced.",
        True,
    ),
    "metrics_unavailable": Explanation(
        USAGE, "The agent's metrics cannot be served.", "Correct metrics_listen or metrics_file, then reload.", True
    ),
    "protected_address": Explanation(
        LINK,
        "The address of the user AS is one that the attachment point depends on, and the link has no port.",
        "Give the link its port, or correct its address.",
    ),
    "own_address": Explanation(
        LINK, "The remote address of the link is an address of the host itself.", "Correct the address of the link."
    ),
    "ambiguous_match": Explanation(
        LINK, "Two links match the same packets.", "Give them different ports or addresses."
    ),
    "interface_missing": Explanation(
        LINK, "A configured interface does not exist.", "Create it, or correct the setting interfaces."
    ),
    "limits_removed": Explanation(
        REMOVED,
        "The operator removed the limits: nothing is enforced.",
        "If this is not intended, install and start the agent on the host again.",
    ),
    "clock_skewed": Explanation(
        SERVICE,
        "The clock of the host is more than 5 s off. Temporary limits start and end by it.",
        "Enable NTP on the host (timedatectl set-ntp true).",
        is_warning=True,
    ),
    "links_vanished": Explanation(
        SERVICE,
        "The newest configuration lacks more than half of the links of the host, so the agent keeps the previous one.",
        "If this is intended, wait ten minutes, or accept it on the host. Otherwise restore the links.",
        is_warning=True,
        beside="The agent of {name} holds back a configuration that lacks most of its links",
    ),
    "foreign_device": Explanation(
        FOREIGN, "A foreign device has a name that the limiter needs.", "Rename or remove it."
    ),
    "hook_obstructed": Explanation(
        FOREIGN,
        "A foreign filter stands in front of the limiter: packets that it takes are not limited.",
        "Remove the filter named in the message, or exclude the packets of the links from it.",
        is_warning=True,
        beside="A foreign filter stands in front at {name}: packets that it takes are not limited",
    ),
    "filter_behind": Explanation(
        FOREIGN,
        "A foreign filter stands behind the limiter and never sees limited packets.",
        "No action needed for the limits. Move it in front if it has to act on packets of the links.",
        is_warning=True,
    ),
    LIMITER_SILENT: Explanation(
        LIMITER,
        "The limiter does not answer its agent, so the enforced limits are not known.",
        "Start scionlab-bw-limiter on the host and read its log. The limits that were set stay in the kernel.",
        voids=True,
    ),
    "document_refused": Explanation(
        LIMITER,
        "The limiter rejects the document of its agent and keeps the previous one.",
        "See the message. If the host was enrolled again, let the limiter trust the new keys.",
        beside="The limiter of {name} rejects the newest configuration",
    ),
    "kernel_unreadable": Explanation(
        LIMITER,
        "The limiter cannot read or change the kernel. The limits already set stay.",
        "See the message. The limiter retries automatically.",
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
        "Install Linux 5.12 or newer with cls_bpf and IFB; see the message for what is missing.",
        voids=True,
    ),
    "program_refused": Explanation(
        LIMITER,
        "The kernel rejected the program of the limiter.",
        "See the message, and install a package that matches the kernel.",
        voids=True,
    ),
    "ambiguous_interface": Explanation(
        LINK,
        "The link-local address is ambiguous: several interfaces match.",
        "Set interfaces in the agent's configuration, or give the link a local address.",
    ),
    "local_address_missing": Explanation(
        LINK, "The host does not have the link's local address.", "Add the address, or correct the bind IP here."
    ),
    "wrong_host": Explanation(
        LIMITER,
        "The host has none of the local addresses of its links: its configuration is that of another host.",
        "Enrol each host with its own token. Behind NAT, set the bind IP of the host here.",
        voids=True,
    ),
}

UNKNOWN: Final = Explanation(
    KERNEL, "The agent is newer than this service: it reports an unknown problem.", "See the message."
)
