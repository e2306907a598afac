"""Capabilities of this process."""

from __future__ import annotations

from pathlib import Path

from ap_agent.common.errors import NotPermittedError

_STATUS = Path("/proc/self/status")
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_BPF": 39}  # <linux/capability.h>


def require_rights(*wanted: str, what: str = "limits") -> None:
    """Check rights in advance; without names both. Raises `NotPermittedError`."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name != "CapEff":
            continue
        missing = [one for one in wanted or _CAPABILITIES if not int(value, 16) >> _CAPABILITIES[one] & 1]
        if missing:
            code = "not_permitted" if missing[0] == "CAP_NET_ADMIN" else "no_bpf_right"
            raise NotPermittedError(f"Changing {what} needs root ({' and '.join(missing)}); use sudo.", code=code)
