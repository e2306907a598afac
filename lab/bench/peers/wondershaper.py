"""wondershaper, a shaper for a whole interface: what Debian installs, and the scheme of its newer versions.

Debian 12 has 1.1a, which needs CBQ (gone from Linux since 6.3), SFQ and the `police` action; where the kernel lacks
them it limits nothing. Versions from 1.4 on use HTB and an IFB: a class at the rate with a bulk class at 95 % of it on
the way out, and one class for everything on the way in. `scheme` builds that one anew from its description, without
the classes for favoured traffic, so that there is something to compare with on any kernel.
"""

from __future__ import annotations

import shutil
import subprocess

from lab.witness import qdiscs
from measuring.netns import Namespace

BULK_CEIL_PERCENT, BULK_RATE_PERCENT = 95, 40


def installed_version() -> str | None:
    """As the package manager says it; None where it is not installed."""
    if shutil.which("wondershaper") is None:
        return None
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "wondershaper"], capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def set_command(version: str, dev: str, kbit: int) -> list[str]:
    """Old versions have positions, newer ones options."""
    if version.startswith("1.1"):
        return ["wondershaper", dev, str(kbit), str(kbit)]
    return ["wondershaper", "-a", dev, "-d", str(kbit), "-u", str(kbit)]


def clear_command(version: str, dev: str) -> list[str]:
    return ["wondershaper", "clear", dev] if version.startswith("1.1") else ["wondershaper", "-c", "-a", dev]


def effect(host: Namespace, dev: str, kbit: int) -> str:
    """Run the installed one on this device, say in a sentence what the kernel has afterwards, and remove it again."""
    version = installed_version()
    if version is None:
        return "wondershaper is not installed here."
    said = host.run("sh", "-c", f"{' '.join(set_command(version, dev, kbit))} 2>&1; true", check=False)
    roots = [one["kind"] for one in qdiscs(host, dev) if one["handle"] == "1:"]
    host.run(*clear_command(version, dev), check=False)
    if roots:
        return f"wondershaper {version} sets a {roots[0]} root on this kernel."
    reason = next((line for line in said.splitlines() if "Error" in line or "RTNETLINK" in line), "it says nothing")
    return f"wondershaper {version} limits nothing on this kernel: {reason.strip()}"


def scheme(dev: str, ifb: str, kbit: int) -> list[str]:
    """Lines for `tc -batch`; the IFB must be there and up."""
    return [
        f"qdisc add dev {dev} root handle 1: htb default 20",
        f"class add dev {dev} parent 1: classid 1:1 htb rate {kbit}kbit",
        f"class add dev {dev} parent 1:1 classid 1:20 htb rate {kbit * BULK_RATE_PERCENT // 100}kbit "
        f"ceil {kbit * BULK_CEIL_PERCENT // 100}kbit",
        f"qdisc add dev {dev} handle ffff: ingress",
        f"filter add dev {dev} parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev {ifb}",
        f"qdisc add dev {ifb} root handle 2: htb default 1",
        f"class add dev {ifb} parent 2: classid 2:1 htb rate {kbit}kbit",
    ]


def clear_lines(dev: str, ifb: str) -> list[str]:
    return [f"qdisc del dev {dev} root", f"qdisc del dev {dev} ingress", f"qdisc del dev {ifb} root"]
