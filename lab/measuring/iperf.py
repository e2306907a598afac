"""iperf3 as a second witness of a rate, judged at the receiver: over UDP on the link's own ports.

The server stands on the user AS's side and listens on the link's port; the client at the attachment point is bound to
the link's local address and port (`--cport`), so that the datagrams belong to the link. Control runs over TCP, which a
link's limit never touches (unless the entry has no port: then the control connection shares the limit). A link at 0
cannot be measured so: iperf3 needs a first datagram through it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

from lab.running import until
from measuring.iproute import LabError
from measuring.netns import Namespace
from measuring.traffic import Address

_START_S = 10.0
# iperf3 counts when it gets around to reading: kept waiting by other programs, it puts bytes into the wrong second.
_AHEAD = ("nice", "-n", "-20")


def available() -> str | None:
    """None where iperf3 is installed, else a sentence."""
    return None if shutil.which("iperf3") else "The program iperf3 is missing; install the package iperf3."


def measure_udp(
    client: Namespace,
    local: Address,
    server: Namespace,
    remote: Address,
    *,
    offered_kbit: int,
    seconds: int,
    reverse: bool,
    payload_bytes: int,
    warm_up_s: int,
) -> list[float]:
    """Datagrams of `payload_bytes` at `offered_kbit` of payload for `seconds` after the warm-up; what the receiver
    reported: payload of complete datagrams per whole second after the warm-up, kbit/s. Raises `LabError`.

    To the server, or from it with `reverse`. The warm-up is left out (`-O`), and so is what comes after the last whole
    interval.
    """
    port = str(remote[1])
    life_s = seconds + warm_up_s + 20
    serving = server.popen(
        ["timeout", str(life_s), *_AHEAD, "iperf3", "-s", "-1", "-J", "-B", remote[0], "-p", port],
    )
    _wait_for_listener(server, remote[1])
    command = [*_AHEAD, "iperf3", "-c", remote[0], "-p", port, "-B", local[0]]
    command += ["-u", "-l", str(payload_bytes), "-b", f"{offered_kbit}k", "--cport", str(local[1])]
    command += ["-t", str(seconds), "-O", str(warm_up_s), "-J", *(["-R"] if reverse else [])]
    said = client.run(*command, timeout_s=life_s)
    try:
        out, err = serving.communicate(timeout=10)
    except subprocess.TimeoutExpired as exc:
        server.lab.stop(serving)
        raise LabError("the iperf3 server did not end") from exc
    document: dict[str, Any] = json.loads(said if reverse else out)
    if "error" in document or serving.returncode != 0:
        raise LabError(f"iperf3: {document.get('error', '')} {err.strip()}")
    samples = [rate / 1000 for rate in _interval_rates(document)]
    if not samples:
        raise LabError(f"iperf3 reports no whole second of {seconds} s")
    return samples


def _interval_rates(document: dict[str, Any]) -> list[float]:
    """bit/s of payload in each whole second that counts."""
    sums = [interval["sum"] for interval in document["intervals"]]
    return [one["bits_per_second"] for one in sums if not one["omitted"] and one["seconds"] > 0.9]


def _wait_for_listener(host: Namespace, port: int) -> None:
    """Until the server listens; the first line of /proc/net/tcp{,6} with this port in state LISTEN (0A)."""
    wanted = f":{port:04X} "

    def listens() -> bool:
        table = host.run("cat", "/proc/net/tcp", "/proc/net/tcp6")
        return any(wanted in line and " 0A " in line for line in table.splitlines())

    until(listens, f"iperf3 does not listen on port {port}", _START_S, pause_s=0.02)
