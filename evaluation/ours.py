"""Our limiter as it is deployed: `ap_agent run`, fed with signed tarballs over HTTP, believed only on its receipt.

The service here is the host API reduced to one host whose links the evaluation decides. It runs in this process on a
socket that lives in the attachment point's namespace; the tarballs are `config_tar`'s, signed with a key of their own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bandwidth_config import LINK_INFO_PATH, MAX_BANDWIDTH_KBIT, TimedLimits
from config_tar import (
    MANIFEST_NAME,
    KeyRing,
    Signer,
    build_manifest,
    format_version,
    host_members,
    pack,
    snapshot,
    to_json,
)
from evaluation.limiters import Link
from measuring.netns import LabError, Namespace

HOST_ID = "e0000000000000000000000000000001"
GENERATION = 1
FOUR_KEYS = ("AS_ID", "IsUserAS", "Bandwidth", "IP-Address")  # all that the thesis' document has
_SERVICE = ("127.0.0.1", 8000)
_URL = "http://127.0.0.1:8000"
_LOG_TAIL_BYTES = 3000
_CONFIG = """\
url = "{url}"
host_id = "{host_id}"
host_secret = "{secret}"
service_keys = ["{key}"]
state_dir = "{folder}/state"
run_dir = "{folder}/run"
{more}"""


@dataclass(frozen=True)
class _As:
    isd_as: str = "17-ffaa:0:1107"
    is_core: bool = False


@dataclass(frozen=True)
class _End:
    """A link's end as `config_tar` wants it."""

    link: Link
    is_limited: bool = True
    link_to: str = "CHILD"
    maximum_kbit: int = MAX_BANDWIDTH_KBIT
    timed: tuple[TimedLimits, ...] = ()
    is_observed: bool = False
    is_vpn: bool = False
    mtu: int = 1472
    border_router: int = 1

    @property
    def interface_id(self) -> int:
        return self.link.interface_id

    @property
    def remote_isd_as(self) -> str:
        return f"17-ffaa:1:{self.link.interface_id:x}"

    @property
    def bandwidth_kbit(self) -> int:
        return self.link.limits.to_user_kbit

    @property
    def from_user_kbit(self) -> int:
        return self.link.limits.from_user_kbit

    @property
    def local_ip(self) -> str:
        return self.link.local[0]

    @property
    def local_port(self) -> int:
        return self.link.local[1]

    @property
    def remote_ip(self) -> str:
        return self.link.remote[0]

    @property
    def remote_port(self) -> int:
        return self.link.remote[1]


@dataclass(frozen=True)
class _Host:
    link_ends: tuple[_End, ...]
    config_version: int
    limits_version: int
    uid: str = HOST_ID
    secret: str = "5ec4e7000000000000000000e7a10a7e"  # noqa: S105 - of a host that exists for minutes
    internal_ip: str = "127.0.0.1"
    AS: _As = field(default_factory=_As)
    attachment_point: object = True


@dataclass(frozen=True)
class Offer:
    """One version of the configuration, as the service has it."""

    version: str
    limits_version: int
    tarball: bytes
    interface_ids: frozenset[str]


class Configurations:
    """Makes signed tarballs of one host, each newer than the one before."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._not_after = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
        self._ends: tuple[object, ...] = ()
        self._config_version = self._limits_version = 0

    @property
    def pinned(self) -> str:
        """The public key with its end, as agent.toml wants it."""
        public = base64.b64encode(self._key.public_key().public_bytes_raw()).decode("ascii")
        return f"{public} {self._not_after:%Y-%m-%dT%H:%M:%SZ}"

    def make(self, links: Sequence[Link], *, four_keys: bool = False) -> Offer:
        """H rises where links come, go or move, L always. With `four_keys` the entries are those of the thesis, which
        no service of ours writes: matched by their address alone, whatever the protocol."""
        ends = tuple((one.interface_id, one.local, one.remote, four_keys) for one in links)
        self._config_version += ends != self._ends
        self._ends, self._limits_version = ends, self._limits_version + 1
        host = _Host(tuple(_End(one) for one in links), self._config_version, self._limits_version)
        keys = KeyRing((Signer(self._key.public_key().public_bytes_raw(), self._not_after, self._key.sign),))
        members = host_members(host, generation=GENERATION, site_url=_URL, keys=keys)
        if four_keys:
            members = _reduced(members, host, keys)
        version = format_version(GENERATION, self._config_version)
        ids = frozenset(str(one.interface_id) for one in links)
        return Offer(version, self._limits_version, pack(members), ids)


def _reduced(members: Mapping[str, bytes], host: _Host, keys: KeyRing) -> dict[str, bytes]:
    entries = json.loads(members[LINK_INFO_PATH])
    only = {number: {key: entry[key] for key in FOUR_KEYS} for number, entry in entries.items()}
    files = {name: data for name, data in members.items() if name != MANIFEST_NAME} | {LINK_INFO_PATH: to_json(only)}
    manifest = build_manifest(snapshot(host), files, units=[], generation=GENERATION, site_url=_URL, keys=keys)
    return {MANIFEST_NAME: manifest, **files}


# --- the service ------------------------------------------------------------------------------------------------


class HostService:
    """The host API for one host: the newest offer, held back as long as the agent has it already; and its receipts."""

    def __init__(self, ap: Namespace) -> None:
        """Raises `OSError` when the port is taken."""
        self.offer: Offer | None = None
        self.receipts: list[tuple[int, dict[str, Any]]] = []  # with their arrival, CLOCK_MONOTONIC ns
        self.changed = threading.Condition()
        self.is_closing = False
        service = self

        class BoundHandler(_Handler):
            host = service

        # Only the socket must be made inside; the threads may run anywhere.
        self._server = ap.call(lambda: ThreadingHTTPServer(_SERVICE, BoundHandler))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    def publish(self, offer: Offer) -> int:
        """From now on every poll gets this one; returns that moment, CLOCK_MONOTONIC ns."""
        with self.changed:
            self.offer = offer
            self.changed.notify_all()
            return time.monotonic_ns()

    def newer_than(self, version: str, limits: str, wait_s: float) -> Offer | None:
        """What the agent does not have, as soon as there is something; None when the time is over."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_closing or self._has_other(version, limits), wait_s)
            return self.offer if self._has_other(version, limits) else None

    def _has_other(self, version: str, limits: str) -> bool:
        return self.offer is not None and (version, limits) != (self.offer.version, str(self.offer.limits_version))

    def store(self, receipt: dict[str, Any]) -> None:
        with self.changed:
            self.receipts.append((time.monotonic_ns(), receipt))
            self.changed.notify_all()

    def close(self) -> None:
        with self.changed:
            self.is_closing = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=5)


class _Handler(BaseHTTPRequestHandler):
    """Host API v4 (docs/api.md), as far as an agent of one host asks."""

    protocol_version = "HTTP/1.1"
    host: HostService

    def do_GET(self) -> None:
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        offer = self.host.newer_than(asked.get("version", ""), asked.get("limits", ""), float(asked.get("wait", 0)))
        if offer is not None:
            self._answer(200, offer.tarball, "application/gzip")
        else:
            self._answer(304 if "version" in asked else 204)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.endswith("/enforcement"):
            self.host.store(json.loads(body))
        self._answer(200, b'{"stored": true}', "application/json")

    def _answer(self, code: int, body: bytes = b"", kind: str = "") -> None:
        self.send_response(code)
        if body:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        with contextlib.suppress(ConnectionError):  # an agent that is being ended does not wait for its answer
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Nothing: the progress line is on this terminal."""


# --- the agent --------------------------------------------------------------------------------------------------


class OurAgent:
    """The agent of one attachment point, from its first configuration on. Ended by the lab, its folder by `close`."""

    def __init__(self, ap: Namespace, more: str = "") -> None:
        """`more` are further lines of agent.toml."""
        self._ap = ap
        self._folder = tempfile.TemporaryDirectory(prefix="slbw-evaluation-")
        self._path = Path(self._folder.name)
        self._configurations = Configurations()
        self.service = HostService(ap)
        self._process: subprocess.Popen[str] | None = None
        self._write_config(more)

    def _write_config(self, more: str) -> None:
        config = self._path / "agent.toml"
        config.touch(mode=0o600)  # it holds the secret
        secret, key = _Host.secret, self._configurations.pinned
        text = _CONFIG.format(url=_URL, host_id=HOST_ID, secret=secret, key=key, folder=self._path, more=more)
        config.write_text(text, encoding="utf-8")

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """`ap_agent run`; None before the first offer."""
        return self._process

    def enforce(self, links: Iterable[Link], *, four_keys: bool = False, deadline_s: float = 60.0) -> float:
        """Offer these links and wait until the agent says that its kernel has them; returns how long that took, s.

        Raises `LabError` with the agent's own words when it does not.
        """
        offered_ns = self.offer(links, four_keys=four_keys)
        return (self.wait_enforced(deadline_s) - offered_ns) / 1e9

    def offer(self, links: Iterable[Link], *, four_keys: bool = False) -> int:
        """A new configuration; returns the moment from which the service had it (CLOCK_MONOTONIC ns)."""
        offered_ns = self.service.publish(self._configurations.make(list(links), four_keys=four_keys))
        if self._process is None:
            with (self._path / "agent.log").open("w", encoding="utf-8") as log:
                self._process = self._ap.python(
                    "ap_agent", "run", "--config", str(self._path / "agent.toml"), stdout=log, stderr=subprocess.STDOUT
                )
        return offered_ns

    def wait_enforced(self, deadline_s: float = 60.0) -> int:
        """Until a receipt says that the newest offer is enforced; returns its arrival (CLOCK_MONOTONIC ns)."""
        deadline = time.monotonic() + deadline_s
        service = self.service
        with service.changed:
            while (found := self._enforced_at()) is None:
                left = deadline - time.monotonic()
                ended = self._process is not None and self._process.poll() is not None
                if left <= 0 or ended:
                    raise LabError(self._complaint(deadline_s))
                service.changed.wait(min(left, 0.5))
        return found

    def _enforced_at(self) -> int | None:
        """The arrival of the first receipt that says so."""
        offer = self.service.offer
        if offer is None:
            return None
        for arrived_ns, receipt in self.service.receipts:
            if (receipt["version"], receipt["limits_version"]) != (offer.version, offer.limits_version):
                continue
            enforced = {number for number, link in receipt["links"].items() if link["state"] == "enforced"}
            if enforced == offer.interface_ids:
                return arrived_ns
        return None

    def _complaint(self, deadline_s: float) -> str:
        state = "still runs" if self._process is None or self._process.poll() is None else "ended"
        problems = self.service.receipts[-1][1]["problems"][:3] if self.service.receipts else "no receipt"
        log = (self._path / "agent.log").read_text(encoding="utf-8")[-_LOG_TAIL_BYTES:]
        return f"the agent of {self._ap.name} ({state}) did not enforce within {deadline_s:g} s: {problems}\n{log}"

    def log(self) -> list[str]:
        """What the agent has said so far."""
        return (self._path / "agent.log").read_text(encoding="utf-8").splitlines()

    def close(self) -> None:
        """End the service and remove the folder; the lab has ended the agent."""
        self.service.close()
        self._folder.cleanup()
