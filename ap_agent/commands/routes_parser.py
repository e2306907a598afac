"""The command line of `scionlab-bw-agent routes`."""

from __future__ import annotations

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

ACTIONS = {
    "plan": "print what `apply` would change, without changing it",
    "apply": "set the rules and routes of uplinks.toml",
    "confirm": "keep a change that waits for its confirmation",
    "rollback": "undo a change that waits for its confirmation, now",
    "remove": "remove all our rules and routes",
    "show": "print uplinks with the links that use them, rules, routes and kernel parameters",
    "verify": "check with interface counters whether replies leave by the uplink where requests arrive",
}
MIN_WITHIN_S, MAX_WITHIN_S = 5, 3600
MIN_FOR_S, MAX_FOR_S = 1, 3600


def add(parser: ArgumentParser) -> None:
    """Includes `guard`, which is internal."""
    chosen = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    each = {
        name: chosen.add_parser(name, help=words, description=words[:1].upper() + words[1:] + ".")
        for name, words in ACTIONS.items()
    }
    each["guard"] = chosen.add_parser("guard")
    for one in each.values():
        one.add_argument("--config", type=Path, metavar="FILE", default=SUPPRESS, help="the configuration file")
    for name in ("plan", "apply", "remove", "show", "verify"):
        each[name].add_argument("--json", action="store_true", help="print JSON")
    for name in ("apply", "remove"):
        each[name].add_argument(
            "--confirm-within",
            type=_seconds(MIN_WITHIN_S, MAX_WITHIN_S),
            metavar="SECONDS",
            help="roll back unless `routes confirm` is run, or the Coordination Service is reached, in this time",
        )
        each[name].add_argument("--by-hand", action="store_true", help="only `routes confirm` confirms")
    each["apply"].add_argument(
        "--boot", action="store_true", help="set the last confirmed routes, without uplinks that are not ready"
    )
    each["verify"].add_argument(
        "--for",
        dest="for_s",
        type=_seconds(MIN_FOR_S, MAX_FOR_S),
        default=10,
        metavar="SECONDS",
        help="how long to count (default 10s)",
    )


def _seconds(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        found = re.fullmatch(r"([0-9]{1,6})s?", text, flags=re.ASCII)
        if found is None or not low <= int(found[1]) <= high:
            raise ArgumentTypeError(f'"{text}" is outside {low} to {high} seconds; write for example 30 or 30s')
        return int(found[1])

    return parse
