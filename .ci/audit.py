"""Looks up every pinned package among the known vulnerabilities (pip-audit), and says what it could not look up.

    python .ci/audit.py requirements/*.lock

Ends with 1 where a package has a known vulnerability. pip-audit itself calls a list on which no package could be looked
up "no known vulnerabilities"; this says `NOT audited` then, and how many. Machines without the internet are no reason
to fail, so that ends with 0: read the line. AUDIT_OSV_URL names another database of advisories in the format of OSV.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 120.0
ANSWER_TIMEOUT_S = 10


def run(locks: list[str], *, time_limit_s: float = TIME_LIMIT_S) -> tuple[int, list[str]]:
    """Exit status and lines."""
    command = [str(Path(sys.executable).with_name("pip-audit")), "--disable-pip", "--require-hashes", "--format=json"]
    command += ["--progress-spinner=off", f"--timeout={ANSWER_TIMEOUT_S}"]
    if url := os.environ.get("AUDIT_OSV_URL"):
        command += ["--vulnerability-service=osv", f"--osv-url={url}"]
    for lock in locks:
        command += ["--requirement", lock]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=time_limit_s)
    except subprocess.TimeoutExpired:
        return 0, [f"NOT audited: no answer within {time_limit_s:g} s"]
    try:
        report = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return 0, [f"NOT audited: pip-audit ended with {done.returncode}: {last[:300]}"]
    return judge(report["dependencies"])


def judge(packages: list[dict[str, Any]]) -> tuple[int, list[str]]:
    looked_up = [one for one in packages if "skip_reason" not in one]
    missing = [one["name"] for one in packages if "skip_reason" in one]
    lines = []
    for one in looked_up:
        for found in one["vulns"]:
            fixed = ", ".join(found["fix_versions"]) or "no version yet"
            lines.append(f"VULNERABLE: {one['name']} {one['version']}: {found['id']}; fixed in {fixed}")
    status = 1 if lines else 0
    if missing:
        names = "" if len(missing) > 10 else f" ({', '.join(sorted(missing))})"
        lines.append(f"NOT audited: {len(missing)} of {len(packages)} packages are unknown to the advisories{names}")
    if looked_up:
        lines.append(f"audited: {len(looked_up)} of {len(packages)} packages")
    return status, lines


if __name__ == "__main__":
    code, said = run(sys.argv[1:])
    print("\n".join(said))
    sys.exit(code)
