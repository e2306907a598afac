"""iperf3 as a second witness of a rate: over UDP, on the link's own ports, judged at the receiver.

The server stands on the user AS's side and listens on the link's port; the client at the attachment point is bound to
the link's local address and port (`--cport`), so that the datagrams belong to the link. Control runs over TCP, which a
link's limit never touches. A link at 0 cannot be measured so: iperf3 needs a first datagram through it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import time
from typing import Any

from measuring.judge import Wire
from measuring.netns import LabError, Namespace
from measuring.traffic import Address

PAYLOAD_BYTES = 1472
_START_TRIES = 50
# iperf3 counts when it gets around to reading: kept waiting by other programs, it puts bytes into the wrong second.
_AHEAD = ("nice", "-n", "-20")


def available() -> str | None:
    """None where iperf3 is installed, else a sentence."""
    return None if shutil.which("iperf3") else "The program iperf3 is missing; install the package iperf3."


def measure_kbit(
    client: Namespace,
    local: Address,
    server: Namespace,
    remote: Address,
    *,
    offered_kbit: int,
    seconds: int = 3,
    reverse: bool = False,
) -> float:
    """Rate on the wire at the receiver, kbit/s: to the server, or from it with `reverse`. Raises `LabError`.

    The first second is left out (`-O 1`), and so is what comes after the last whole interval.
    """
    serving = server.popen([*_AHEAD, "iperf3", "-s", "-1", "-J", "-B", remote[0], "-p", str(remote[1])])
    _wait_for_listener(server, remote[1])
    command = [*_AHEAD, "iperf3", "-c", remote[0], "-p", str(remote[1]), "-B", local[0], "--cport", str(local[1])]
    command += ["-u", "-l", str(PAYLOAD_BYTES), "-b", f"{offered_kbit}k", "-t", str(seconds), "-O", "1", "-J"]
    said = client.run(*command, *(["-R"] if reverse else []), timeout_s=seconds + 20)
    try:
        out, err = serving.communicate(timeout=10)
    except subprocess.TimeoutExpired as exc:
        server.lab.stop(serving)
        raise LabError("the iperf3 server did not end") from exc
    document: dict[str, Any] = json.loads(said if reverse else out)
    if "error" in document or serving.returncode != 0:
        raise LabError(f"iperf3: {document.get('error', '')} {err.strip()}")
    rates = _interval_rates(document)
    if not rates:
        raise LabError(f"iperf3 reports no whole second of {seconds} s")
    payload_kbit = statistics.fmean(rates) / 1000
    wire = Wire(6 if ":" in remote[0] else 4)
    return payload_kbit * wire.bytes(PAYLOAD_BYTES) / PAYLOAD_BYTES


def _interval_rates(document: dict[str, Any]) -> list[float]:
    """bit/s of payload in each whole second that counts."""
    sums = [interval["sum"] for interval in document["intervals"]]
    return [one["bits_per_second"] for one in sums if not one["omitted"] and one["seconds"] > 0.9]


def _wait_for_listener(host: Namespace, port: int) -> None:
    """Until the server listens; the first line of /proc/net/tcp{,6} with this port in state LISTEN (0A)."""
    wanted = f":{port:04X} "
    for _ in range(_START_TRIES):
        table = host.run("cat", "/proc/net/tcp", "/proc/net/tcp6")
        if any(wanted in line and " 0A " in line for line in table.splitlines()):
            return
        time.sleep(0.02)
    raise LabError(f"iperf3 does not listen on port {port}")
