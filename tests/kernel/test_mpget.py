"""`mpget` as people start it, against real web servers over real links that are limited, die, lie and are congested.

user   eth1 192.0.2.2 ── 192.0.2.1 eth1      server
       eth2 198.51.100.2 ── 198.51.100.1 eth2
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from measuring.iproute import run_command
from measuring.netns import Lab
from tests.cases import case
from tests.support.namespaces import a_lab
from tests.support.waiting import until

PREFIX = "slbwm"
SIZE = 1_500_000
HOSTS = ("192.0.2.1", "198.51.100.1")
USERS = ("192.0.2.2", "198.51.100.2")
PORT, TLS, PROXY = 8080, 8443, 3128


def done_bytes(part_map: Path) -> int:
    """What the file of a download that has not ended says it has."""
    return sum(end - start for start, end in json.loads(part_map.read_text())["done"]) if part_map.exists() else 0


@dataclass
class Done:
    code: int
    said: str
    json: dict[str, Any]

    @property
    def received(self) -> list[int]:
        return [one["received_bytes"] for one in self.json["paths"]]

    @property
    def reasons(self) -> list[str]:
        return [one["reason"] for one in self.json["paths"]]


class World:
    """Servers of one file on one host, a user with two links to it, and a folder for what is fetched."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.user, self.server = lab.namespace("user"), lab.namespace("server")
        for number, (here, there) in enumerate(zip(USERS, HOSTS, strict=True), start=1):
            lab.veth(self.user.nic(f"eth{number}", f"{here}/24"), self.server.nic(f"eth{number}", f"{there}/24"))
        self.content = os.urandom(SIZE)
        served = folder / "served"
        served.write_bytes(self.content)
        self.certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        made += ["-subj", "/CN=mpget", "-addext", f"subjectAltName=IP:{HOSTS[0]}", "-days", "2"]
        run_command([*made, "-keyout", str(key), "-out", str(self.certificate)])
        serve = ("serve", str(served))
        for arguments in (
            *((*serve, host, str(PORT)) for host in HOSTS),
            (*serve, HOSTS[0], str(TLS), str(self.certificate), str(key)),
            ("proxy", HOSTS[1], str(PROXY)),
        ):
            process = self.server.python("tests.mpget_server", *arguments)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        command = ["multipath", "-o", str(self.file), "--json", *arguments]
        return self.user.python(*command, env={**os.environ, **(env or {})})

    def finish(self, process: subprocess.Popen[str]) -> Done:
        out, err = process.communicate(timeout=60)
        return Done(process.returncode, err, json.loads(out) if out else {})

    def fetch(self, *paths: str, options: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Done:
        """Run it to its end; of a success the bytes are compared, and that nothing else is left."""
        given = [word for path in paths for word in ("--path", path)]
        done = self.finish(self.start(*given, *options, env=env))
        if done.code == 0:
            assert self.file.read_bytes() == self.content
            assert not list(self.folder.glob("fetched.*"))
        return done

    @property
    def file(self) -> Path:
        return self.folder / "fetched"

    @contextmanager
    def limited(self, *kbit: int) -> Iterator[None]:
        """The server's links, by the kernel's token bucket."""
        for number, rate in enumerate(kbit, start=1):
            limit = ["rate", f"{rate}kbit", "burst", "3028", "limit", "30000"]
            self.server.run("tc", "qdisc", "add", "dev", f"eth{number}", "root", "tbf", *limit)
        try:
            yield
        finally:
            for number in range(1, len(kbit) + 1):
                self.server.run("tc", "qdisc", "del", "dev", f"eth{number}", "root")

    def sent_bytes(self, dev: str) -> int:
        """What the server sent by one of its links."""
        return int(self.server.run("cat", f"/sys/class/net/{dev}/statistics/tx_bytes"))

    def clear(self) -> None:
        for one in self.folder.glob("fetched*"):
            one.unlink()


def url(number: int, fault: str = "") -> str:
    return f"http://{HOSTS[number]}:{PORT}/file{fault and '?'}{fault}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with a_lab(PREFIX) as lab:
        yield World(lab, tmp_path_factory.mktemp("mpget"))


@pytest.fixture(autouse=True)
def _fresh(world: World) -> None:
    world.clear()


def test_two_links_bring_one_file_and_each_what_it_can(world: World) -> None:
    with world.limited(8000, 4000):
        done = world.fetch(f"{USERS[0]}>{url(0)}", f"dev=eth2>{url(1)}")
    assert done.code == 0, done.said
    assert min(done.received) > SIZE / 10  # that they bring 2 : 1 is measured: ./dev evaluate multipath, row 5.1b
    assert sum(done.received) == SIZE + done.json["waste_bytes"]
    assert [one["state"] for one in done.json["paths"]] == ["active", "active"]
    assert done.json["size_bytes"] == done.json["done_bytes"] == SIZE
    assert f"{SIZE:,} bytes in " in done.said
    for one in done.json["paths"]:
        series = one["series_bytes"]
        assert series
        assert series == sorted(series)
        assert one["received_bytes"] / 3 < series[-1] <= one["received_bytes"]


FAULTS = {
    "longer": "its file has 1500001 bytes, the others' 1500000",
    "etag": 'its file has the ETag "other", the others\' "one"',
    "elsewhere": "requested bytes ",
    "away": "redirects to http://other.invalid: give that as a path, if you trust it",
    "gone": "HTTP 404",
    "gzip": "HTTP 206 gzip",
    "busy": "HTTP 503",
    "early": "the answer ended ",
}


def test_what_is_wrong_with_one_path_costs_that_path_alone(world: World, subtests: pytest.Subtests) -> None:
    """The good path answers first, which decides what file it is, and is limited, so that the other is still asked."""
    with world.limited(20_000):
        for fault, reason in FAULTS.items():
            with case(subtests, fault):
                world.clear()
                done = world.fetch(url(0), url(1, fault))
                assert done.code == 0, done.said
                assert reason in done.reasons[1]
                assert reason in done.said


@pytest.mark.parametrize(
    "path",
    [
        url(1, "moved"),
        f"https://{HOSTS[0]}:{TLS}/file",
        f"proxy=http://{HOSTS[1]}:{PROXY}>{url(0)}",
        f"proxy=http://{HOSTS[1]}:{PROXY}>https://{HOSTS[0]}:{TLS}/file",
    ],
)
def test_redirects_within_the_host_certificates_that_verify_and_proxies(world: World, path: str) -> None:
    done = world.fetch(path, env={"SSL_CERT_FILE": str(world.certificate)})
    assert done.code == 0, done.said


def test_a_link_that_breaks_costs_no_byte(world: World) -> None:
    with world.limited(4000, 4000):
        before = world.sent_bytes("eth2")
        process = world.start("--path", f"{USERS[0]}>{url(0)}", "--path", f"{USERS[1]}>{url(1)}")
        until(lambda: world.sent_bytes("eth2") > before + SIZE // 6)  # of a half: a third of the way
        world.server.ip("link", "set", "eth2", "down")
        try:
            done = world.finish(process)
        finally:
            world.server.ip("link", "set", "eth2", "up")
            # Until its first answer: the kernel takes a second to send over it again, and that is the next test's time.
            ping = ("ping", "-q", "-c1", "-W1", HOSTS[1])  # once more each time: it ends at the first ICMP error
            until(lambda: " 1 received" in world.user.run(*ping, check=False))
    assert done.code == 0, done.said
    assert world.file.read_bytes() == world.content
    assert done.received[1] > 0


def test_a_download_that_was_killed_is_resumed_and_fetches_nothing_twice(world: World) -> None:
    part_map = world.folder / "fetched.part.map"
    with world.limited(2000, 2000):
        process = world.start("--path", url(0), "--path", url(1))
        until(lambda: done_bytes(part_map) > 200_000)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        there = done_bytes(part_map)
        again = world.fetch(url(0), url(1))
        assert (again.code, "Give --resume, or delete it" in again.said) == (2, True)
        done = world.fetch(url(0), url(1), options=("--resume",))
    assert done.code == 0, done.said
    assert sum(done.received) <= SIZE - there + done.json["waste_bytes"]
