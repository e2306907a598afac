"""Capabilities of this process."""

from __future__ import annotations

import re
from pathlib import Path

from ap_agent.common.errors import NotPermittedError

_STATUS = Path("/proc/self/status")
_BITS = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_BPF": 39}  # <linux/capability.h>
_NEEDED = ("CAP_NET_ADMIN", "CAP_BPF")


def require_rights(*wanted: str, what: str = "limits") -> None:
    """Check rights in advance; without names both. Raises `NotPermittedError`."""
    missing = [one for one in wanted or _NEEDED if not has_right(one)]
    if missing:
        code = "not_permitted" if missing[0] == "CAP_NET_ADMIN" else "no_bpf_right"
        raise NotPermittedError(f"Changing {what} needs root ({' and '.join(missing)}); use sudo.", code=code)


def has_right(name: str, status: str | None = None) -> bool:
    """`status`: the text of /proc/self/status."""
    text = status if status is not None else _STATUS.read_text(encoding="ascii", errors="replace")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", text, flags=re.MULTILINE)
    return bool(found and int(found[1], 16) >> _BITS[name] & 1)
