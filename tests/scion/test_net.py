"""A real SCION network on our keys, our topologies and our limiter."""

from __future__ import annotations

import base64
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from lab.bench.engines import Engine
from lab.scion.host import ScionHost
from lab.scion.net import CORE, USER, ScionNet
from scionlab.scion_config.pki.files import ca_files, trc_files

# Alone: routers miss heartbeats, and take links down, when the processors are busy.
pytestmark = [pytest.mark.kernel, pytest.mark.timeout(300)]


@pytest.fixture
def limiter(net: ScionNet) -> Iterator[Engine]:
    with Engine(net.ap.namespace) as engine:
        yield engine
        engine.enforce({})


def limit(engine: Engine, net: ScionNet, kbit: int) -> None:
    engine.enforce(net.link_info(kbit))


def changes(net: ScionNet) -> list[int]:
    """BFD's state changes of each router since it began."""
    return [host.state_changes() for host in net.hosts]


def test_paths_lead_both_ways_through_the_attachment_point(net: ScionNet) -> None:
    assert net.user.paths(CORE, probe=True) == ["17-ffaa:1:1#0,1 17-ffaa:0:1107#21,11 17-ffaa:0:1101#1,0"]
    assert net.core.paths(USER, probe=True) == ["17-ffaa:0:1101#0,1 17-ffaa:0:1107#11,21 17-ffaa:1:1#1,0"]


@contextmanager
def pinging(net: ScionNet) -> Iterator[None]:
    """Ten echo requests a second from the user AS to the core, for 10 s at least; in the end all were answered."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(net.user.ping, net.core, count=100, interval_ms=100)
        yield
        found = running.result()
    assert (found.sent, found.received) == (100, 100)


def spread(net: ScionNet, trc: bytes) -> None:
    """Give it to the core AS, and wait until the others fetched it."""
    files = trc_files([trc])
    (name,) = files
    net.core.install(files)
    for host in (net.ap, net.user):
        path = host.config / name
        assert host.until(path.exists, 60, began=time.monotonic()) is not None, f"{host.isd_as} has no {name}"
        assert pem_content(path.read_bytes()) == trc


def test_a_root_is_replaced_by_a_trc_first_and_chains_within_its_grace_period(net: ScionNet) -> None:
    """While traffic runs. What is signed with new chains is verified by an AS that knows nothing any more."""
    old_chain = net.core.config / "crypto/as/ISD17-ASffaa_0_1101.pem"
    before = {"old.pem": old_chain.read_bytes()}
    with pinging(net):
        spread(net, net.keys.update_trc(datetime.now(UTC), renew_root=True))
    net.user.forget_paths()
    assert net.user.time_until_path(CORE, 60) is not None
    assert as_certificate(before) in fetched_certificates(net.user)
    with pinging(net):
        files = {host: net.keys.chain_files(host.isd_as, datetime.now(UTC)) for host in net.hosts}
        for host in net.hosts:
            host.install(files[host])
        net.core.install(ca_files(net.keys.ca))
        time.sleep(6)  # control services look for new chains every 5 s
    net.user.forget_paths()
    assert net.user.time_until_path(CORE, 60) is not None
    assert {as_certificate(files[net.core]), as_certificate(files[net.ap])} <= fetched_certificates(net.user)
    for host in net.hosts:
        host.check()


def pem_content(text: bytes) -> bytes:
    """Of the TRC that a control service got from another one and wrote down."""
    first, *lines, last = text.decode().splitlines()
    assert (first, last) == ("-----BEGIN TRC-----", "-----END TRC-----")
    return base64.b64decode("".join(lines))


def as_certificate(files: dict[str, bytes]) -> bytes:
    """The first of the chain, in DER."""
    (chain,) = (content for name, content in files.items() if name.endswith(".pem"))
    return x509.load_pem_x509_certificates(chain)[0].public_bytes(Encoding.DER)


def fetched_certificates(host: ScionHost) -> set[bytes]:
    """Of all ASes whose signatures its control service verified."""
    with closing(sqlite3.connect(host.state / "cs-1.trust.db")) as database:
        return {row[0] for row in database.execute("SELECT as_cert FROM chains")}


def test_at_a_heavy_overload_no_router_loses_its_link(net: ScionNet, limiter: Engine) -> None:
    """Echo requests of 1000 B, 8 Mbit/s of them, through 500 kbit/s."""
    limit(limiter, net, 500)
    before = changes(net)
    said = net.user.ping(net.core, count=10_000, interval_ms=1, payload_bytes=1000)
    assert said.sent == 10_000
    assert 300 < said.received < 1_000
    assert changes(net) == before
    assert net.user.paths(CORE, probe=True)


def test_a_blocked_link_takes_the_path_away_and_a_limit_brings_it_back(net: ScionNet, limiter: Engine) -> None:
    limit(limiter, net, 0)
    found = net.user.ping(net.core)
    assert (found.sent, found.received) == (5, 0)
    limit(limiter, net, 1000)
    began = time.monotonic()
    assert net.user.until(lambda: net.user.ping(net.core, count=1).received == 1, 30, began=began) is not None
