"""`./dev run`: the site with sample data on this machine, until Ctrl-C. State is kept in `var/` between runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from lab import folders
from lab.points import PAUSE_S, Points
from lab.service import REPOSITORY, CoordinationService, ServiceError
from measuring.iproute import LabError

MAX_PORT = 65_535
TRY_FIRST = """
Serving {site}. Try first (the passwords are above):
  1. Log in as owner@example.org, open "Laptop over VPN" and change its limit: it is enforced within seconds.
  2. Log in as admin@example.org and look at the cockpit: one attachment point has no report, one link fails.
  3. In the cockpit, lower the default of Magdeburg AP: a preview shows who is affected, and the change can be undone.
The agents are real; what their kernels have is made up, so no traffic is limited (./dev demo limits real traffic).
Mails: {site}/mails/. Logs: {var}/log and {var}/aps. Ctrl-C stops.
"""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev run", description=__doc__)
    parser.add_argument("--bind", default="127.0.0.1:8000", help="address and port to serve on (default: %(default)s)")
    parser.add_argument("--var", type=Path, default=REPOSITORY / "var", help="folder for the state (default: var/)")
    options = parser.parse_args(arguments)
    site_url = f"http://{options.bind}"
    service = CoordinationService(options.var.resolve(), bind=options.bind, site_url=site_url)
    points = Points(service)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with _folder_of_our_own(service.var_dir):
            _require_free(options.bind)
            print("Preparing the database ...", flush=True)
            service.prepare()
            print(service.output_of("-m", "lab.seed"), flush=True)
            print("Starting web, worker and beat ...", flush=True)
            service.start(lambda: is_healthy(site_url))
            print("Starting the agents of the attachment points ...", flush=True)
            points.start()
            print(TRY_FIRST.format(site=site_url, var=service.var_dir), flush=True)
            while True:
                service.check()
                points.play()
                time.sleep(PAUSE_S)
    except KeyboardInterrupt:
        print("Stopped.")
        return 0
    except (ServiceError, LabError) as exc:
        print(f"./dev run: {exc}", file=sys.stderr)
        return 1
    finally:
        points.close()
        service.stop()


@contextlib.contextmanager
def _folder_of_our_own(var_dir: Path) -> Iterator[None]:
    """Make the folder for the state and hold it: two workers would take each other's tasks. Raises `ServiceError`."""
    try:
        var_dir.mkdir(parents=True, exist_ok=True)
        lock = folders.claim(var_dir)
    except OSError as exc:
        reason = os.strerror(exc.errno or 0)
        raise ServiceError(f"the state cannot be kept in {var_dir}: {reason}. Choose a folder with --var.") from exc
    if lock is None:
        raise ServiceError(f"another ./dev run is using {var_dir}. Stop it, or choose another folder with --var.")
    with lock:
        yield


def _require_free(bind: str) -> None:
    """Raises `ServiceError` where nothing can be served on this address; gunicorn would only try again and again."""
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ServiceError(f"--bind {bind} is not ADDRESS:PORT, as in 127.0.0.1:8001.")
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        socket.create_server((host.strip("[]"), int(port)), family=family).close()
    except OSError as exc:
        reason = exc.strerror if isinstance(exc, socket.gaierror) else os.strerror(exc.errno or 0)
        raise ServiceError(f"cannot serve on {bind}: {reason}. Choose another with --bind ADDRESS:PORT.") from exc


def is_healthy(site_url: str) -> bool:
    """True when the site answers; called in the network in which it is to be reached."""
    try:
        with urllib.request.urlopen(f"{site_url}/readyz", timeout=2) as answer:  # noqa: S310  our own http address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main())
