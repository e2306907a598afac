"""The part of the demo that needs no root: the service, the form, the tarball, and the agent's plan."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import requests

from lab.demo.agent import programs
from lab.demo.site import DemoSite
from lab.demo.world import USER_ASES
from lab.nginx import free_port
from lab.processes import Processes
from lab.serve import is_healthy
from lab.service import CoordinationService
from measuring.iproute import LabError

EXIT_NOT_EVERYTHING_SHOWN = 3
_PLAN_LINES = 12


def show_without_root(missing: str, folder: Path, step: Callable[[str], None]) -> int:
    """Shows what it can; returns an exit status that says that the limits themselves were not shown."""
    print(
        f"{missing}\nSo this demo cannot enforce limits and measure them. It shows the rest: service, tarball and plan."
    )
    site_url = f"http://127.0.0.1:{free_port()}"
    service = CoordinationService(folder / "service", bind=site_url.removeprefix("http://"), site_url=site_url)
    try:
        step("Starting the Coordination Service on this machine's loopback")
        service.prepare()
        site = DemoSite(service, lambda function: function())
        host = site.set_up(sorted({user_as.owner for user_as in USER_ASES}))
        service.start(lambda: is_healthy(site_url))
        step("Seven user ASes are created in the web form")
        for user_as in USER_ASES:
            site.create_user_as(user_as, host.attachment_point_id)
            link = site.link(user_as)
            print(f"  {user_as.label}: {link['bandwidth_kbit']:,} kbit/s requested. {link['status']['text']}")
        step("The attachment point enrols with a one-time token and pulls its configuration")
        both = programs(None, folder / "agent")
        said = both.run("agent", "enrol", site_url, stdin=f"{host.token}\n").splitlines()
        print("\n".join(f"  {line}" for line in said[:2]))
        link_info = _show_tarball(site_url, both.folder / "credentials.json")
        step("What the limiter would do with it there (`plan` touches nothing)")
        (both.folder / "link_info.json").write_text(json.dumps(_as_anywhere(link_info)), encoding="utf-8")
        _show_plan(both)
    finally:
        service.stop()
    print(f"\nNot shown: limits in the kernel and measured traffic. {missing}")
    return EXIT_NOT_EVERYTHING_SHOWN


def _show_tarball(site_url: str, credentials_file: Path) -> bytes:
    """Returns its link_info.json. Raises `LabError`."""
    credentials = json.loads(credentials_file.read_text(encoding="utf-8"))
    answer = requests.get(
        f"{site_url}/api/v4/host/{credentials['host_id']}/config",
        auth=(credentials["host_id"], credentials["host_secret"]),
        headers={"User-Agent": "scionlab-bw-agent/demo"},  # anybody else may have SCION files to lose
        timeout=20,
    )
    answer.raise_for_status()
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as tar:
        for member in tar.getmembers():
            print(f"  {member.name} ({member.size} bytes)")
        file = tar.extractfile("etc/scion/link_info.json")
        if file is None:
            raise LabError("the configuration has no link_info.json")
        link_info = file.read()
    for interface_id, entry in json.loads(link_info).items():
        print(f"    link {interface_id}: {entry['Bandwidth']:,} kbit/s, {entry['IP-Address']} port {entry['Port']}")
    return link_info


def _as_anywhere(link_info: bytes) -> dict[str, dict[str, object]]:
    """Without the attachment point's own addresses, which this machine does not have: it would be the wrong host."""
    return {
        interface_id: {key: value for key, value in entry.items() if not key.startswith("Local-")}
        for interface_id, entry in json.loads(link_info).items()
    }


def _show_plan(both: Processes) -> None:
    text = both.run("limiter", "plan", "--link-info", both.folder / "link_info.json", check=False)
    lines = text.splitlines()
    print("\n".join(f"  {line}" for line in lines[:_PLAN_LINES]))
    if len(lines) > _PLAN_LINES:
        print(f"  ... and {len(lines) - _PLAN_LINES} more lines")
