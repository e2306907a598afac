"""A host with the running agent and traffic on its links, for `lab.faults` to break.

                 ┌ eth0 192.0.2.1 ──────── 192.0.2.11 eth0 ┐
    203.0.113.1  ap                                        u1  203.0.113.11       link 1: those, by route over eth0
                 ├ eth1 198.51.100.1 ── 198.51.100.11 eth1 ┤                      link 2: the addresses of eth0
                 └ tun0 10.10.1.1 ─ ─ ─ ─ ─  10.10.1.2 tun0 ┘                     link 3: through the tunnel

Links 1 and 3 are offered much more than their limit, so that every moment without it shows; link 2 much less, so that
every packet that is missing was lost. The agent has no service, and neither polls nor compares during a run: what it
repairs, it repairs because the kernel told it.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from ap_agent.agent.store import Store
from ap_agent.document.bundle import MANIFEST, check_members
from bandwidth_config import LINK_INFO_PATH
from lab import witness
from measuring.netns import Lab, LabError, Namespace
from measuring.traffic import Endpoint, data

IFB = "slbw0"
HOST_ID = "lab"
NETS = {"eth0": "192.0.2", "eth1": "198.51.100"}
LIMIT_KBIT = {1: 1_000, 2: 4_000, 3: 1_000}
OFFERED_KBIT = {1: 8_000, 2: 400, 3: 4_000}
PAYLOAD_BYTES = {1: 500, 2: 100, 3: 500}
AP_END = {1: ("203.0.113.1", 51_001), 2: ("192.0.2.1", 51_002), 3: ("10.10.1.1", 51_003)}
USER_END = {1: ("203.0.113.11", 50_001), 2: ("192.0.2.11", 50_002), 3: ("10.10.1.2", 50_003)}
_START_DEADLINE_S = 20.0
_LOOK_INTERVAL_S = 0.005
_CONFIG = """\
state_dir = "{folder}/state"
run_dir = "{folder}/run"
log_level = "debug"
audit_interval_s = 3600
poll_interval_s = 3600
"""


class FaultWorld:
    """Context manager: the hosts, the tunnel, and the agent once every link is limited. Raises `LabError`."""

    def __init__(self, prefix: str, *, starts_agent: bool = True) -> None:
        self._prefix = prefix
        self._starts_agent = starts_agent

    def __enter__(self) -> FaultWorld:
        self._folder = tempfile.TemporaryDirectory(prefix=f"{self._prefix}-")
        self.lab = Lab(self._prefix).__enter__()
        try:
            self.ap, self.user = self.lab.namespace("ap"), self.lab.namespace("u1")
            self.connect("eth0")
            self.connect("eth1")
            for host, address in ((self.ap, "203.0.113.1"), (self.user, "203.0.113.11")):
                host.ip("addr", "add", f"{address}/32", "dev", "lo")
            self.route_over("192.0.2")
            for host in (self.ap, self.user):
                self.open_tunnel(host)
            self.folder = Path(self._folder.name)
            self._store_bundle()
            self.configure()
            if self._starts_agent:
                self.start_agent()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.lab.__exit__(kind, value, trace)
        self._folder.cleanup()

    # --- hosts and wires ------------------------------------------------------------------------------------

    def connect(self, dev: str) -> None:
        """The wire between both hosts, new, with its addresses."""
        net = NETS[dev]
        self.lab.veth(self.ap.nic(dev, f"{net}.1/24"), self.user.nic(dev, f"{net}.11/24"))

    def route_over(self, net: str) -> None:
        """Send the packets of link 1 through one of `NETS`, in both directions."""
        self.user.ip("route", "replace", "203.0.113.1", "via", f"{net}.1", "src", "203.0.113.11")
        self.ap.ip("route", "replace", "203.0.113.11", "via", f"{net}.11", "src", "203.0.113.1")

    def open_tunnel(self, host: Namespace) -> None:
        """A tun device, new, and the process that carries its packets to the other host."""
        inner, outer, peer = (
            ("10.10.1.1", "192.0.2.1", "10.10.1.2=192.0.2.11")
            if host is self.ap
            else ("10.10.1.2", "192.0.2.11", "10.10.1.1=192.0.2.1")
        )
        self.lab.tun(host.nic("tun0", f"{inner}/24"))
        process = host.python("lab.tunnel", "--dev", "tun0", "--local", f"{outer}:1194", "--peer", f"{peer}:1194")
        if process.stdout is None or process.stdout.readline().strip() != "ready":
            raise LabError(f"the tunnel of {host.name} did not start")

    def renew_tunnel(self) -> None:
        """Delete the device of the attachment point and make it anew. Its process goes on: on a busy machine the start
        of another one may take longer than a run's traffic."""
        self.ap.ip("link", "del", "tun0")
        self.lab.tun(self.ap.nic("tun0", "10.10.1.1/24"))

    def tc(self, *words: str) -> str:
        return self.ap.run("tc", *words)

    # --- the agent ------------------------------------------------------------------------------------------

    def configure(self, more: str = "") -> None:
        """Write agent.toml; `more` are further lines of it."""
        config = self.folder / "agent.toml"
        config.write_text(_CONFIG.format(folder=self.folder) + more, encoding="utf-8")
        config.chmod(0o600)

    def _store_bundle(self) -> None:
        entries = {str(number): _entry(number) for number in LIMIT_KBIT}
        members = {LINK_INFO_PATH: json.dumps(entries).encode()}
        hashes = {name: hashlib.sha1(content).hexdigest() for name, content in members.items()}  # noqa: S324 - the field's
        manifest = {
            "host_id": HOST_ID,
            "host_secret": "none",
            "url": "",
            "version": "1.1",
            "files": hashes,
            "systemd_units": [],
        }
        members[MANIFEST] = json.dumps(manifest).encode()
        Store(self.folder / "state").save(check_members(members, host_id=None))

    def start_agent(self, *, first: str = "") -> None:
        """Returns when every link is limited both ways. `first` is Python that the process runs before."""
        program = f"import sys\nfrom ap_agent import __main__ as agent\n{first}\nsys.exit(agent.main(sys.argv[1:]))\n"
        argv = [sys.executable, "-c", program, "run", "--config", str(self.folder / "agent.toml")]
        with (self.folder / "agent.log").open("w", encoding="utf-8") as log:
            self.agent = self.ap.popen(argv, stdout=log, stderr=subprocess.STDOUT)
        self.until(lambda: self.health().get("links", {}).get("enforced") == len(LIMIT_KBIT), _START_DEADLINE_S)

    def log(self) -> list[str]:
        return (self.folder / "agent.log").read_text(encoding="utf-8").splitlines()

    def cycles(self) -> int:
        """How many the agent has made since its start."""
        return sum(line.startswith("reconcile.done") for line in self.log())

    def health(self) -> dict[str, Any]:
        """The health file; empty while there is none."""
        try:
            found: dict[str, Any] = json.loads((self.folder / "run" / "health.json").read_bytes())
        except FileNotFoundError:
            return {}
        return found

    def problems(self) -> dict[str, str]:
        """Subject by code."""
        return {one["code"]: one["subject"] for one in self.health().get("problems", [])}

    def planned_writes(self) -> int:
        """What a further cycle would write: `ap_agent plan`, which touches nothing."""
        argv = ["-m", "ap_agent", "plan", "--json", "--config", str(self.folder / "agent.toml")]
        text = self.ap.run("env", "PYTHONPATH=.", sys.executable, *argv, check=False)
        return len(json.loads(text)["plan"]["ops"])

    def until(self, condition: Callable[[], bool], deadline_s: float) -> float:
        """Look every few milliseconds; returns the moment (monotonic) at which it held. Raises `LabError`."""
        deadline = time.monotonic() + deadline_s
        while not condition():
            if time.monotonic() > deadline:
                tail = "\n".join(self.log()[-20:])
                raise LabError(f"not within {deadline_s:g} s; the agent said:\n{tail}")
            time.sleep(_LOOK_INTERVAL_S)
        return time.monotonic()

    # --- what the kernel has ----------------------------------------------------------------------------------

    def rate_kbit(self, dev: str, classid: str) -> int | None:
        """None where there is no such class."""
        found = witness.classes(self.ap, dev).get(classid)
        return found.rate_bits // 1000 if found is not None else None

    def filter_lines(self, dev: str, *at: str) -> int:
        return len(self.ap.run("tc", "filter", "show", "dev", dev, *at, check=False).splitlines())

    def is_limited_on(self, dev: str, link: int) -> bool:
        """Both directions have their class."""
        to_user, from_user = self.rate_kbit(dev, f"1:{link:x}"), self.rate_kbit(IFB, f"3:{link:x}")
        return to_user == from_user == LIMIT_KBIT[link]

    # --- traffic ------------------------------------------------------------------------------------------------

    def traffic(self) -> dict[Namespace, list[Endpoint]]:
        """What both hosts send on all links."""
        plan: dict[Namespace, list[Endpoint]] = {self.ap: [], self.user: []}
        for link in LIMIT_KBIT:
            stream = (data(OFFERED_KBIT[link], PAYLOAD_BYTES[link]),)
            plan[self.ap].append(Endpoint(f"link{link}", AP_END[link], USER_END[link], stream))
            plan[self.user].append(Endpoint(f"link{link}", USER_END[link], AP_END[link], stream))
        return plan


def _entry(link: int) -> dict[str, Any]:
    """Its entry in link_info.json (DOMAIN section 3)."""
    return {
        "AS_ID": 0xB6 + link,
        "IsUserAS": True,
        "Bandwidth": LIMIT_KBIT[link],
        "IP-Address": USER_END[link][0],
        "Port": USER_END[link][1],
        "Local-IP": AP_END[link][0],
        "Local-Port": AP_END[link][1],
        "VPN": link == 3,
    }
