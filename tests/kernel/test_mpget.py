"""`mpget` as people start it, against real web servers over real links that are limited, die, lie and are congested.

user   eth1 192.0.2.2 ── 192.0.2.1 eth1      server
       eth2 198.51.100.2 ── 198.51.100.1 eth2
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from measuring.iproute import cleanup_stale, run_command
from measuring.netns import Lab
from tests.cases import case
from tests.kernel.conftest import MISSING

pytestmark = pytest.mark.kernel

PREFIX = "slbwm"
SIZE = 1_500_000
PIECE = 65_536
HOSTS = ("192.0.2.1", "198.51.100.1")
USERS = ("192.0.2.2", "198.51.100.2")
NGINX, FAULTY, PLAIN, TLS, PROXY = 8080, 8081, 8082, 8443, 3128


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
        self.root = folder / "root"
        self.root.mkdir()
        self.content = os.urandom(SIZE)
        (self.root / "file").write_bytes(self.content)
        (self.root / "empty").touch()
        self.proxy_log = folder / "proxy"
        self._serve()

    def _serve(self) -> None:
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        config = self.folder / "nginx.conf"
        config.write_text(
            f"daemon off; user root; pid {self.folder}/pid; error_log {self.folder}/errors; worker_processes 1;"
            f"events {{}} http {{ access_log off; server {{ listen {NGINX}; root {self.root}; }} }}"
        )
        self.server.popen(["nginx", "-p", str(self.folder), "-c", str(config)], **quiet)
        self.server.python("http.server", str(PLAIN), "--directory", str(self.root), **quiet)
        self.certificate, key = self.folder / "certificate.pem", self.folder / "key.pem"
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        made += ["-subj", "/CN=mpget", "-addext", f"subjectAltName=IP:{HOSTS[0]}", "-days", "2"]
        run_command([*made, "-keyout", str(key), "-out", str(self.certificate)])
        serve = ("tests.mpget_server", "serve", str(self.root / "file"))
        ready = [self.server.python(*serve, host, str(FAULTY)) for host in HOSTS]
        ready.append(self.server.python(*serve, HOSTS[0], str(TLS), str(self.certificate), str(key)))
        self.proxy = self.server.python("tests.mpget_server", "proxy", HOSTS[1], str(PROXY))
        for process in [*ready, self.proxy]:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        until = time.monotonic() + 20
        while not all(f":{port} " in self.server.run("ss", "-ltn") for port in (NGINX, PLAIN)):
            assert time.monotonic() < until
            time.sleep(0.05)

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

    def metalink(self, *urls: str, piece: int = PIECE, right: bool = True) -> str:
        """With hashes of pieces and of the file; `right=False`: of another file as a whole."""
        hashes = [hashlib.sha256(self.content[at : at + piece]).hexdigest() for at in range(0, SIZE, piece)]
        whole = hashlib.sha256(self.content + b"" if right else b"other").hexdigest()
        file = self.folder / "file.meta4"
        file.write_text(
            '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="fetched">'
            f'<size>{SIZE}</size><hash type="sha-256">{whole}</hash><pieces length="{piece}" type="sha-256">'
            + "".join(f"<hash>{one}</hash>" for one in hashes)
            + "</pieces>"
            + "".join(f"<url>{one}</url>" for one in urls)
            + "</file></metalink>"
        )
        return str(file)

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

    def clear(self) -> None:
        for one in self.folder.glob("fetched*"):
            one.unlink()


def url(number: int, port: int = NGINX, rest: str = "file") -> str:
    return f"http://{HOSTS[number]}:{port}/{rest}"


def faulty(fault: str, number: int = 1) -> str:
    return url(number, FAULTY, f"file?{fault}")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    if MISSING is not None:
        pytest.skip(MISSING)
    cleanup_stale(PREFIX)
    with Lab(PREFIX) as lab:
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
                done = world.fetch(url(0, FAULTY), faulty(fault))
                assert done.code == 0, done.said
                assert reason in done.reasons[1]
                assert reason in done.said


def test_when_every_path_is_dead_that_is_said_with_the_reasons(world: World) -> None:
    table = {
        faulty("gone"): "HTTP 404",
        faulty("away"): "redirects to http://other.invalid",
        f"https://{HOSTS[0]}:{TLS}/file": "its certificate does not verify: self-signed certificate",
        url(0, 9): "Connection refused",
        f"203.0.113.9>{url(0)}": "Cannot assign requested address",
        f"dev=eth7>{url(0)}": "No such device",
        "http://nobody.invalid/file": "[Errno -",  # whichever error the resolver has without a network
    }
    done = world.fetch(*table)
    assert (done.code, world.file.exists()) == (3, False), done.said
    assert [reason for reason, found in zip(table.values(), done.reasons, strict=True) if reason not in found] == []
    assert "All paths are dead. " in done.said


def test_a_redirect_within_the_host_and_a_certificate_that_verifies(world: World) -> None:
    assert world.fetch(faulty("moved")).code == 0
    world.clear()
    env = {"SSL_CERT_FILE": str(world.certificate)}
    assert world.fetch(f"https://{HOSTS[0]}:{TLS}/file", env=env).code == 0


def test_a_server_without_range_gives_one_path_and_that_is_said(world: World) -> None:
    done = world.fetch(url(0, PLAIN), url(1, PLAIN))
    assert done.code == 0, done.said
    assert sorted(one > 0 for one in done.received) == [False, True]
    assert "the server has no Range, so this path is used alone." in done.said
    world.clear()
    done = world.fetch(url(0, PLAIN), f"{USERS[1]}>{url(1)}")  # the other path has Range, so it is the better one
    assert (done.code, done.received[0]) == (0, 0), done.said


def test_an_empty_file(world: World, subtests: pytest.Subtests) -> None:
    for name, port in (("nginx", NGINX), ("without Range", PLAIN)):
        with case(subtests, name):
            world.clear()
            done = world.finish(world.start("--path", url(0, port, "empty"), "--path", url(1, port, "empty")))
            assert (done.code, world.file.read_bytes()) == (0, b""), done.said


def test_wrong_pieces_are_fetched_elsewhere_and_the_path_is_out_after_two(world: World) -> None:
    with world.limited(20_000, 20_000):
        done = world.fetch(url(0, FAULTY), faulty("wrong"), options=("--metalink", world.metalink()))
    assert done.code == 0, done.said
    good, bad = (one["wrong_pieces"] for one in done.json["paths"])
    assert (good, bad >= 2) == (0, True)
    assert done.reasons[1] == "2 wrong pieces"
    assert done.json["waste_bytes"] >= PIECE


def test_only_wrong_pieces_end_with_3_and_a_wrong_whole_hash_with_4(world: World) -> None:
    done = world.fetch(faulty("wrong"), options=("--metalink", world.metalink()))
    assert (done.code, done.reasons, world.file.exists()) == (3, ["2 wrong pieces"], False), done.said
    world.clear()
    done = world.fetch(options=("--metalink", world.metalink(url(0), right=False)))
    assert (done.code, world.file.exists()) == (4, False)
    assert "is not what the Metalink's sha256 says" in done.said


def test_mirrors_of_a_metalink_are_paths_of_every_source(world: World) -> None:
    link = world.metalink(url(0), url(1))
    assert len(world.fetch(options=("--metalink", link)).received) == 2
    world.clear()
    (world.root / "file.meta4").write_bytes(Path(link).read_bytes())
    done = world.fetch(USERS[0], "dev=eth1", options=("--metalink", url(0, NGINX, "file.meta4")))
    assert done.code == 0, done.said
    assert [one["path"].partition(" >")[0] for one in done.json["paths"]] == [USERS[0]] * 2 + ["dev eth1"] * 2


def test_over_a_proxy(world: World) -> None:
    through = f"proxy=http://{HOSTS[1]}:{PROXY}>"
    done = world.fetch(through + url(0))
    assert done.code == 0, done.said
    world.clear()
    done = world.fetch(f"{through}https://{HOSTS[0]}:{TLS}/file", env={"SSL_CERT_FILE": str(world.certificate)})
    assert done.code == 0, done.said


def test_one_path_given_or_found_twice_is_used_once(world: World) -> None:
    done = world.fetch(url(0), url(0))
    assert (done.code, len(done.received)) == (0, 1)
    assert "is given twice and used once." in done.said
    world.clear()
    with world.limited(20_000):
        done = world.fetch(url(0), f"{USERS[0]}>{url(0)}")
    assert done.code == 0, done.said
    assert sorted(one["state"] for one in done.json["paths"]) == ["active", "out"]
    assert "it has the addresses and the URL of " in done.said


def test_a_source_that_leaves_by_another_device_is_told(world: World) -> None:
    done = world.fetch(f"{USERS[1]}>{url(0)}")
    assert "packets from this source leave by another device, eth1." in done.said
    world.user.run("ip", "route", "add", "203.0.113.0/24", "dev", "eth2")
    world.clear()
    assert "another device" not in world.fetch(f"{USERS[1]}>{url(1)}").said


def test_a_link_that_breaks_costs_no_byte(world: World) -> None:
    with world.limited(4000, 4000):
        process = world.start("--path", f"{USERS[0]}>{url(0)}", "--path", f"{USERS[1]}>{url(1)}")
        time.sleep(1)  # a third of the way
        world.server.ip("link", "set", "eth2", "down")
        try:
            done = world.finish(process)
        finally:
            world.server.ip("link", "set", "eth2", "up")
    assert done.code == 0, done.said
    assert world.file.read_bytes() == world.content
    assert done.received[1] > 0


def test_a_download_that_was_killed_is_resumed_and_fetches_nothing_twice(
    world: World, subtests: pytest.Subtests
) -> None:
    for name, link in (("by its map", ()), ("by its hashes", ("--metalink", world.metalink(piece=16384)))):
        with case(subtests, name), world.limited(2000, 2000):
            world.clear()
            paths = ("--path", url(0), "--path", url(1))
            process = world.start(*paths, *link)
            part_map = world.folder / "fetched.part.map"
            until = time.monotonic() + 20
            while not part_map.exists():
                assert time.monotonic() < until
                time.sleep(0.05)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            there = sum(e - s for s, e in json.loads(part_map.read_text())["done"])
            assert there > 200_000
            again = world.finish(world.start(*paths, *link))
            assert (again.code, "Give --resume, or delete it" in again.said) == (2, True)
            done = world.fetch(url(0), url(1), options=("--resume", *link))
            assert done.code == 0, done.said
            kept = there if name == "by its map" else there - 10 * 16384  # pieces that were begun are fetched again
            assert sum(done.received) <= SIZE - kept + done.json["waste_bytes"]


def test_a_file_that_has_changed_is_not_mixed_with_what_is_there(world: World) -> None:
    part, part_map = world.folder / "fetched.part", world.folder / "fetched.part.map"
    part.write_bytes(bytes(1000))
    facts = {"url": url(0), "size": SIZE, "etag": "former", "modified": None, "ranged": True}
    part_map.write_text(json.dumps({"format": "mpget 1", "file": facts, "done": [[0, 1000]]}))
    done = world.fetch(url(0), options=("--resume",))
    assert (done.code, world.file.exists()) == (3, False)
    assert "its file has the ETag" in done.said
    part_map.write_text("{}")
    done = world.fetch(url(0), options=("--resume",))
    assert (done.code, "is not a map of mpget" in done.said) == (2, True)


def test_a_full_disk_ends_with_5_and_is_resumed_when_there_is_room(world: World, tmp_path: Path) -> None:
    run_command(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(tmp_path)])
    file = tmp_path / "file"
    try:
        command = (sys.executable, "-m", "multipath", "-o", str(file), "--path", url(0))
        full = world.finish(world.user.popen(command))
        assert full.code == 5, full.said
        assert "No space left on device. Then --resume continues." in full.said
        assert not file.exists()
        run_command(["mount", "-o", "remount,size=8m", str(tmp_path)])
        there = sum(e - s for s, e in json.loads((tmp_path / "file.part.map").read_text())["done"])
        assert there >= 100_000  # it was full before a map was due
        done = world.finish(world.user.popen([*command, "--resume", "--json"]))
        assert done.code == 0, done.said
        assert sum(done.received) <= SIZE - there + 1 + done.json["waste_bytes"]
        assert file.read_bytes() == world.content
    finally:
        run_command(["umount", "-l", str(tmp_path)])


def test_a_second_one_at_the_same_file_and_control_c(world: World) -> None:
    with world.limited(500, 500):  # 24 s: longer than a busy machine needs to start the second one
        first = world.start("--path", url(0))
        until = time.monotonic() + 20
        while not (world.folder / "fetched.part").exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        second = world.finish(world.start("--path", url(1), "--resume"))
        assert (second.code, "Another mpget is writing" in second.said) == (2, True)
        time.sleep(0.5)
        first.send_signal(signal.SIGINT)
        done = world.finish(first)
    assert (done.code, "Interrupted. " in done.said) == (130, True)
    assert (world.folder / "fetched.part.map").exists()
