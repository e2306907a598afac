"""`./dev run`: the site with seeded data on this machine, until Ctrl-C. State is kept in `var/` between runs."""

from __future__ import annotations

import argparse
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from lab.service import REPOSITORY, CoordinationService, ServiceError


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev run", description=__doc__)
    parser.add_argument("--bind", default="127.0.0.1:8000", help="address and port to serve on (default: %(default)s)")
    parser.add_argument("--var", type=Path, default=REPOSITORY / "var", help="folder for the state (default: var/)")
    options = parser.parse_args(arguments)
    site_url = f"http://{options.bind}"
    service = CoordinationService(options.var.resolve(), bind=options.bind, site_url=site_url)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        print("Preparing the database ...", flush=True)
        service.prepare()
        print(service.manage("seed_demo"), flush=True)
        print("Starting web, worker and beat ...", flush=True)
        service.start(lambda: is_healthy(site_url))
        print(
            f"Serving {site_url}, administration at {site_url}/admin/. Logs: {options.var}/log. Ctrl-C stops.",
            flush=True,
        )
        while True:
            service.check()
            time.sleep(1)
    except KeyboardInterrupt:
        print("Stopped.")
        return 0
    except ServiceError as exc:
        print(f"./dev run: {exc}", file=sys.stderr)
        return 1
    finally:
        service.stop()


def is_healthy(site_url: str) -> bool:
    """True when the site answers; called in the network in which it is to be reached."""
    try:
        with urllib.request.urlopen(f"{site_url}/healthz", timeout=2) as answer:  # noqa: S310  our own http address
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main())
