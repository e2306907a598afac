"""One cycle of the engine in a process of its own, and the memory that it needs.

    python -m bench.agent_memory LINKS

Prints JSON: resident bytes before the cycle (interpreter, modules and links), after it, and the largest ever.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ap_agent.model import EngineSettings
from ap_agent.reconcile import reconcile
from bench.world import make_links


def status_bytes(field: str) -> int:
    """A field of /proc/self/status that is in kB."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/self/status has no {field}")


def main(count: int) -> int:
    links = make_links(count, kbit=2_000)
    before = status_bytes("VmRSS")
    result = reconcile(links, EngineSettings())
    print(json.dumps({"before": before, "after": status_bytes("VmRSS"), "peak": status_bytes("VmHWM")}))
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
