"""Live counters: the agent names links with an open page, the limiter writes their counters each second.

    <state_dir>/looks.json          by the agent, mode 0640, group of the limiter; schema 1
    <limiter_run_dir>/live.json     by the limiter, mode 0644; schema 1

A request can only ask to read at most `MOST_LINKS` links for `ASKED_FOR_S`; the content is also in the limiter's state.
Without requests nothing is read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from ap_agent.common.files import parse_json, read_own, write_atomically
from ap_agent.document.series import REMEDY, SeriesSample, of_schema, sample_of
from contract.link_rules import MAX_INTERFACE_ID

SCHEMA = 1
LOOKS_FILE, LIVE_FILE = "looks.json", "live.json"
MAX_BYTES = 64 * 1024
MOST_LINKS = 64
ASKED_FOR_S = 15.0  # validity of a request


def write_request(folder: Path, links: Collection[int]) -> None:
    """Request these links for another `ASKED_FOR_S`. Raises `OSError`."""
    document = {"schema": SCHEMA, "links": sorted(links)[:MOST_LINKS]}
    write_atomically(folder / LOOKS_FILE, json.dumps(document).encode(), mode=0o640, is_durable=False)


def read_request(folder: Path) -> frozenset[int]:
    """The links of the last request; empty if none. Raises `StoreError`, `NotPermittedError`."""
    remedy = "Restart scionlab-bw-agent, to write it again."
    return read_own(folder / LOOKS_FILE, MAX_BYTES, _request, remedy, is_foreign=True) or frozenset()


def _request(data: bytes) -> frozenset[int]:
    links = of_schema(SCHEMA, parse_json(data))["links"]
    if not isinstance(links, list) or len(links) > MOST_LINKS:
        raise ValueError("too many links")
    if any(type(one) is not int or not 1 <= one <= MAX_INTERFACE_ID for one in links):
        raise ValueError("a link is not an interface id")
    return frozenset(links)


def write_live(folder: Path, samples: Mapping[int, SeriesSample]) -> None:
    """Raises `OSError`."""
    document = {"schema": SCHEMA, "links": list(samples.items())}
    data = json.dumps(document, separators=(",", ":")).encode()
    write_atomically(folder / LIVE_FILE, data, mode=0o644, is_durable=False)


def read_live(folder: Path) -> dict[int, SeriesSample]:
    """The newest sample of each requested link in the kernel; empty without a file. Raises `StoreError`,
    `NotPermittedError`."""
    return read_own(folder / LIVE_FILE, MAX_BYTES, _samples, REMEDY) or {}


def _samples(data: bytes) -> dict[int, SeriesSample]:
    """Without `parse_json`, which rejects the 64 bits of a segment."""
    return {int(number): sample_of(row) for number, row in of_schema(SCHEMA, json.loads(data))["links"]}
