"""`test --all-links`: schedule a joint test of an AS, run the user's end of all its parts on this host, and print the
combined result."""

from __future__ import annotations

import signal
import socket
from argparse import Namespace
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing import get_context
from typing import Any

from scionlab_bw import credentials, links, tables
from scionlab_bw.client import Service
from scionlab_bw.errors import ClientError, UsageError
from scionlab_bw.reserve import reserve, until_over
from scionlab_bw.test_link import parameter, test_link
from scionlab_bw.units import format_number
from terminal import clean, table

_DIRECTIONS = (("to_user", "To your AS"), ("from_user", "From your AS"))
_HEADERS = ["LINK", "ATTACHMENT POINT", "ALONE", "TOGETHER", "LIMIT", "ARRIVED", "DROPPED"]


def all_links(service: Service, arguments: Namespace) -> int:
    """0: each limit was enforced, and together the Links passed their sum. 1: not, or no result. Cancelled if
    interrupted."""
    made = _reserved(service, arguments)
    path = f"joint-tests/{made['id']}/"
    count = len({one["link_id"] for one in made["parts"]})
    tables.tell(arguments, f"Joint test {made['id']} of {count} links from {tables.moment(made['begins_at'])} on.")
    try:
        for said in _run_ends(service, made["parts"], arguments):
            tables.tell(arguments, said)
        found = until_over(service, path)
    except KeyboardInterrupt:
        service.delete(path)
        raise
    tables.show(arguments, found, _shown(found))
    return 0 if found["is_good"] else 1


def _reserved(service: Service, arguments: Namespace) -> dict[str, Any]:
    """A new joint test, or with --id one scheduled on the AS's page."""
    user_as = links.find_as(service, arguments.link).content
    if arguments.id is not None:
        found = service.get(f"joint-tests/{arguments.id}/").content
        if found["as_id"] != user_as["id"]:
            raise UsageError(f"Joint test {arguments.id} is not one of {user_as['isd_as']}.")
        return found
    if arguments.tool != "quick":
        raise UsageError("--all-links takes no TOOL: each link is tested with quick.")
    body = dict(map(parameter, arguments.parameters))
    if unknown := body.keys() - {"seconds"}:
        raise UsageError(f'--all-links takes no "{min(unknown)[:60]}". Use seconds=NUMBER.')
    return reserve(service, f"ases/{user_as['id']}/tests/", body, arguments)


# --- the user's ends --------------------------------------------------------------------------------------------------


def _run_ends(service: Service, parts: list[dict[str, Any]], arguments: Namespace) -> Iterator[str]:
    """Each in its own process, so that they do not delay each other; yields the output of each."""
    about = {link_id: service.get(f"links/{link_id}/").content for link_id in {one["link_id"] for one in parts}}
    if not parts:
        return
    orders = [(one["link_id"], one["id"], arguments.bind or _own_address(about[one["link_id"]])) for one in parts]
    with get_context("fork").Pool(len(orders), _leave_interrupts_to_the_parent) as pool:
        for link_id, said in pool.imap_unordered(_run_end, orders):
            yield f"Link {link_id} ({about[link_id]['attachment_point']}): {said}"


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _run_end(order: tuple[int, int, str | None]) -> tuple[int, str]:
    link_id, test_id, bind = order
    told = StringIO()
    arguments = Namespace(link=str(link_id), id=test_id, bind=bind, tool="quick", at=None, parameters=[], json=False)
    try:
        with redirect_stdout(told):
            test_link(Service.of(credentials.load()), arguments)
    except ClientError as exc:
        return link_id, str(exc)
    return link_id, " ".join(told.getvalue().splitlines()[1:])


def _own_address(link: dict[str, Any]) -> str | None:
    """The Link's address, or that behind a NAT, if this host has it; otherwise the route decides."""
    for ip in (link["public_ip"], link["bind_ip"]):
        if ip is not None and _is_here(ip):
            return str(ip)
    return None


def _is_here(ip: str) -> bool:
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        try:
            sock.bind((ip, 0))
        except OSError:
            return False
    return True


# --- shown ------------------------------------------------------------------------------------------------------------


def _shown(found: dict[str, Any]) -> str:
    parts = [clean(found["text"])]
    if found["state"] == "finished":
        parts += [f"{name} [kbit/s]\n{_table(found[key])}" for key, name in _DIRECTIONS]
    return "\n\n".join(["", *parts]).removeprefix("\n")


def _table(side: dict[str, Any]) -> str:
    alone = {one["link_id"]: one["sum"]["passed_kbit"] for one in side["alone"]}
    rows = [
        (one["link_id"], one["attachment_point"], _rate(alone.get(one["link_id"])), *_figures(one["sum"]))
        for one in side["links"]
    ]
    rows.append(("", "sum", _rate(side["alone_kbit"]), *_figures(side["total"])))
    return table(_HEADERS, rows, right={*_HEADERS} - {"ATTACHMENT POINT"})


def _figures(sums: dict[str, Any]) -> tuple[str, str, str, str]:
    dropped = sums["dropped_percent"]
    rates = (_rate(sums[f"{name}_kbit"]) for name in ("passed", "limit", "arrived"))
    return *rates, "-" if dropped is None else f"{dropped:.1f} %"  # type: ignore[return-value]  # of three


def _rate(kbit: float | None) -> str:
    return "-" if kbit is None else format_number(round(kbit))
