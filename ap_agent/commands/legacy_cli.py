"""`scionlab_bw_limiter`: the command line of the thesis (DOMAIN section 5), based on the limiter's commands.

Unlike the thesis' program it exits with a non-zero code on failure, and it does not change a kernel that the limiter's
service manages.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ap_agent.commands import limiter_cli as limiter
from ap_agent.commands.operator_choice import FILE_NAME, OperatorChoice, limiter_settings, load_choice, save_choice
from ap_agent.common import rights
from ap_agent.common.errors import AgentError, SettingsError
from ap_agent.common.lock import Lock, unit_of
from ap_agent.common.log import configure
from ap_agent.common.outcome import EXIT_CODES, OK, USAGE, Outcome, ended
from ap_agent.common.settings import Settings
from ap_agent.dataplane.engine import Engine
from bandwidth_config import RuleError, check_bandwidth, format_kbit, parse_bandwidth

STOCK_LINK_INFO = Path("/etc/scion/link_info.json")  # where the stock client installs it
_COMMAND = "scionlab_bw_limiter"


def main(
    argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None, engine: Engine | None = None
) -> int:
    """Return the exit code, as documented in `outcome`."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not (given.enforce or given.reset or given.show or given.b is not None or given.p is not None):
        parser.print_help(sys.stderr)
        return USAGE
    environment = environment if environment is not None else os.environ
    configure("error", under_systemd=False)
    return ended(_COMMAND, lambda: _do(given, environment, engine))


def _do(given: argparse.Namespace, environment: Mapping[str, str], engine: Engine | None) -> Outcome | int:
    default_kbit = _bandwidth(given.b)
    settings, _ = limiter_settings(given.config, environment)
    alone: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if given.enforce or given.reset:
        rights.require_rights()
        alone = Lock(settings.limiter_run_dir, "limiter", f"{_COMMAND} {'-l' if given.enforce else '-r'}")
    with alone:
        _store(given, settings, default_kbit)
        settings, choice = limiter_settings(given.config, environment)
        if not (given.enforce or given.reset or given.show):
            print(f"Takes effect with the next `{_COMMAND} -l`, or after `systemctl reload {unit_of('limiter')}`.")
            return OK
        used = engine if engine is not None else Engine(settings.maps_dir)
        if given.reset:
            return limiter.reset_locked(settings, used)
        if given.enforce:
            return limiter.enforce_locked(settings, used, _source(settings, choice))
        source: limiter.Source | None = None
        with contextlib.suppress(AgentError):  # it limits without that file as well, and then shows no names of links
            source = _source(settings, choice)
        return limiter.show_kernel(settings, used, source)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Limit the bandwidth of each user AS's link at this attachment point.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-l", dest="enforce", action="store_true", help="enforce the limits of link_info.json")
    what.add_argument("-r", dest="reset", action="store_true", help="remove all limits")
    what.add_argument("-s", dest="show", action="store_true", help="show the limits in the kernel")
    parser.add_argument(
        "-b",
        metavar="KBPS",
        help="store the bandwidth shared by all traffic that belongs to no link, in kbit/s (implies unmatched = "
        "default)",
    )
    parser.add_argument(
        "-p",
        metavar="FILE",
        type=Path,
        help=f"store the path of link_info.json (default: the document of the agent, else {STOCK_LINK_INFO})",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the configuration file")
    return parser


def _bandwidth(text: str | None) -> int | None:
    """Parse -b. Raises `SettingsError`."""
    if text is None:
        return None
    try:
        kbit = parse_bandwidth(text)
        if kbit > 0:
            check_bandwidth(kbit)
    except RuleError as exc:
        raise SettingsError(f"-b: {exc.message}", key="-b") from exc
    if kbit <= 0:
        raise SettingsError(
            f"-b: {kbit} would block all other traffic of this host, SSH included. Choose at least 1.", key="-b"
        )
    return kbit


def _store(given: argparse.Namespace, settings: Settings, default_kbit: int | None) -> None:
    """Store -b and -p, and print that. Raises `StoreError`, `InputError`."""
    choice = load_choice(settings.limiter_state_dir)
    said: list[str] = []
    if given.p is not None:
        limiter.source_of_file(given.p)  # an unusable path is not stored
        choice = replace(choice, link_info=given.p.absolute())
        said.append(f"Stored: link_info.json will be read from {choice.link_info}.")
    if default_kbit is not None:
        choice = replace(choice, default_bandwidth_kbit=default_kbit)
        said.append(
            f"Stored: all traffic that belongs to no link shares {format_kbit(default_kbit)} in each direction "
            f"(this overrides the configuration file; to undo it, delete {settings.limiter_state_dir / FILE_NAME})."
        )
    if said:
        save_choice(settings.limiter_state_dir, choice)
        print("\n".join(said))


def _source(settings: Settings, choice: OperatorChoice) -> limiter.Source:
    """-p, given or stored; otherwise the handed over document; otherwise the stock client's file."""
    if choice.link_info is not None:
        return limiter.source_of_file(choice.link_info)
    handed, _ = limiter.handed_source(settings)
    return handed if handed is not None else limiter.source_of_file(STOCK_LINK_INFO)


if __name__ == "__main__":
    raise SystemExit(main())
