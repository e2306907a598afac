"""Debian's nginx with packaging/nginx/nginx.conf, on free ports and in a folder of its own, before any web tiers."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.faults.service.servers import started, wait_for
from tests.faults.service.site import Answer, free_port

CONFIGURATION = Path(__file__).resolve().parents[3] / "packaging/nginx/nginx.conf"
NAMES = "lab.example.org www.lab.example.org"


class Nginx:
    """Listens for TLS (`tls_port`), for redirects (`port_80`), and for the site without TLS (`port`)."""

    def __init__(self, *web_ports: int) -> None:
        program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            pytest.skip("no nginx: apt-get install nginx")
        # /tmp: its workers run as nobody, and must be able to reach what they serve.
        self.folder, self._program = Path(tempfile.mkdtemp(prefix="slbw-nginx-", dir="/tmp")), program
        self.folder.chmod(0o755)
        self.port, self.port_80, self.tls_port = free_port(), free_port(), free_port()
        (self.folder / "static").mkdir()
        self._certificate()
        (self.folder / "nginx.conf").write_text(self._configuration(web_ports))
        self._server: subprocess.Popen[bytes] | None = None

    def _certificate(self) -> None:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
             "-subj", "/CN=lab.example.org", "-keyout", "privkey.pem", "-out", "fullchain.pem"],
            cwd=self.folder, check=True, capture_output=True, timeout=30,
        )  # fmt: skip

    def _configuration(self, web_ports: tuple[int, ...]) -> str:
        """What is deployed, with other ports and folders, and the web tiers by their ports instead of a name."""
        text = CONFIGURATION.read_text()
        # max_fails=0: as with names that are looked up, nobody who was away a moment ago is left out for 10 s.
        tiers = " ".join(f"server 127.0.0.1:{port} max_fails=0;" for port in web_ports)
        here = f"127.0.0.1:{self.tls_port}"
        for old, new in {
            "SERVER_NAMES": NAMES,
            "listen 80 default_server;": f"listen 127.0.0.1:{self.port_80} default_server;",
            "listen 443 ssl http2 default_server;": f"listen {here} ssl http2 default_server;",
            "listen 443 ssl http2;": f"listen {here} ssl http2; listen 127.0.0.1:{self.port};",
            "$web web:8000;": "$web web_tiers;",
            "    server_tokens off;\n": f"    server_tokens off;\n    upstream web_tiers {{ {tiers} }}\n"
            # Who asks is told by a header here, so that one machine can be several networks.
            "    set_real_ip_from 127.0.0.1;\n    real_ip_header X-Test-Address;\n",
            "/etc/scionlab/tls": str(self.folder),
            "/srv/nginx": str(self.folder),
            "/tmp/nginx": f"{self.folder}/nginx",  # noqa: S108  what the configuration says
            "/dev/stdout": str(self.access_log),
        }.items():
            assert old in text, f"{CONFIGURATION} has no {old!r}"
            text = text.replace(old, new)
        return text

    @property
    def access_log(self) -> Path:
        return self.folder / "access.log"

    @property
    def error_log(self) -> Path:
        return self.folder / "error.log"

    def start(self) -> None:
        with self.error_log.open("ab") as log:
            command = [self._program, "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;"]
            self._server = started(command, stdout=log, stderr=log)
        wait_for(lambda: self._listens() or self._server.poll() is not None, "nginx listens")  # type: ignore[union-attr]
        assert self._server.poll() is None, self.error_log.read_text()

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

    def ask(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None, host: str = "",
        port: int | None = None,
    ) -> Answer:  # fmt: skip
        """One request; over TLS unless `port` is another one's. The certificate is our own and is not checked."""
        port = port or self.tls_port
        if port == self.tls_port:
            context = ssl._create_unverified_context()  # noqa: S323  the certificate was made above
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=100, context=context)
        else:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)  # type: ignore[assignment]
        try:
            named = {"Host": host or "lab.example.org", **(headers or {})}
            connection.request(method, path, body=body or None, headers=named)
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read(), 0.0)
        finally:
            connection.close()
