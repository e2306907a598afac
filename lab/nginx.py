"""Debian's nginx with packaging/nginx/nginx.conf, on free ports and in a folder of its own, before any web tiers."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lab.servers import ServerError
from lab.service import REPOSITORY

CONFIGURATION = REPOSITORY / "packaging/nginx/nginx.conf"
NAMES = "lab.example.org www.lab.example.org"
START_DEADLINE_S = 60.0


def free_port(address: str = "127.0.0.1") -> int:
    """Below those that Linux gives to connections (net.ipv4.ip_local_port_range): none of them takes it meanwhile."""
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as found, suppress(OSError):
            found.bind((address, port))
            return port


def program() -> str | None:
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")


class Nginx:
    """Listens for TLS (`tls_port`), for redirects (`port_80`), and for the site without TLS (`port`)."""

    def __init__(self, where: Mapping[str, str]) -> None:
        """`where` are replacements in the configuration: how web tiers are found. Raises `ServerError`."""
        found = program()
        if found is None:
            raise ServerError("No nginx. Install it: apt-get install nginx")
        # /tmp: its workers run as nobody, and must be able to reach what they serve.
        self.folder, self._program = Path(tempfile.mkdtemp(prefix="slbw-nginx-", dir="/tmp")), found
        self.folder.chmod(0o755)
        self.port, self.port_80, self.tls_port = free_port(), free_port(), free_port()
        (self.folder / "static").mkdir()
        self._certificate()
        (self.folder / "nginx.conf").write_text(self._configuration(where))
        self._server: subprocess.Popen[bytes] | None = None

    def _certificate(self) -> None:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
             "-subj", "/CN=lab.example.org", "-keyout", "privkey.pem", "-out", "fullchain.pem"],
            cwd=self.folder, check=True, capture_output=True, timeout=30,
        )  # fmt: skip

    def _configuration(self, where: Mapping[str, str]) -> str:
        """What is deployed, with other ports and folders."""
        text = CONFIGURATION.read_text()
        here = f"127.0.0.1:{self.tls_port}"
        for old, new in {
            "SERVER_NAMES": NAMES,
            "listen 80 default_server;": f"listen 127.0.0.1:{self.port_80} default_server;",
            "listen 443 ssl http2 default_server": f"listen {here} ssl http2 default_server",
            "listen 443 ssl http2;": f"listen {here} ssl http2; listen 127.0.0.1:{self.port} backlog=4096;",
            "/etc/scionlab/tls": str(self.folder),
            "/srv/nginx": str(self.folder),
            "/tmp/nginx": f"{self.folder}/nginx",  # noqa: S108  what the configuration says
            "/dev/stdout": str(self.access_log),
            **where,
        }.items():
            if old not in text:
                raise ServerError(f"{CONFIGURATION} has no {old!r}")
            text = text.replace(old, new)
        return text

    @property
    def access_log(self) -> Path:
        return self.folder / "access.log"

    @property
    def error_log(self) -> Path:
        return self.folder / "error.log"

    @property
    def pid(self) -> int:
        if self._server is None:
            raise ServerError("nginx was not started")
        return self._server.pid

    def start(self) -> None:
        """Raises `ServerError`."""
        command = [self._program, "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;"]
        if shutil.which("setpriv") is not None:
            command = ["setpriv", "--pdeathsig", "KILL", "--", *command]  # it ends with us
        with self.error_log.open("ab") as log:
            self._server = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + START_DEADLINE_S
        while not self._listens():
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"nginx did not start: {self.error_log.read_text()[-800:]}")
            time.sleep(0.02)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(timeout=10)
        shutil.rmtree(self.folder)
