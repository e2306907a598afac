"""`scionlab_bw_limiter`: the command line of the thesis (DOMAIN section 5), on top of the agent's own commands.

Unlike the thesis' program it ends with a non-zero exit code when anything was not done, and it never works on a kernel
that the agent's service looks after.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ap_agent.__main__ import print_outcome, real_engine, settings_in_force
from ap_agent.agent.cycle import make_client
from ap_agent.agent.store import Store
from ap_agent.commands import commands
from ap_agent.commands.commands import STOCK_LINK_INFO, Source
from ap_agent.common.errors import AgentError, SettingsError
from ap_agent.common.lock import SERVICE, AgentLock
from ap_agent.common.log import configure
from ap_agent.common.progress import for_person
from ap_agent.common.settings import Settings
from ap_agent.enforcing import Engine
from bandwidth_config import RuleError, check_bandwidth, format_kbit, parse_bandwidth

_COMMAND = "scionlab_bw_limiter"


def main(
    argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None, engine: Engine | None = None
) -> int:
    """Returns the exit code, as documented in `commands`."""
    parser = _parser()
    given = parser.parse_args(argv)
    if not (given.enforce or given.reset or given.show or given.b is not None or given.p is not None):
        parser.print_help(sys.stderr)
        return commands.USAGE
    environment = environment if environment is not None else os.environ
    configure("error", under_systemd=False)
    try:
        default_kbit = _bandwidth(given.b)
        settings = settings_in_force(given.config, environment)
        if not (given.enforce or given.reset):
            return _without_lock(given, settings, engine, default_kbit)
        commands.require_net_admin()
        with AgentLock(settings.run_dir, f"{_COMMAND} {'-l' if given.enforce else '-r'}"):
            _store(given, settings, default_kbit)
            settings = settings_in_force(given.config, environment)
            used = engine if engine is not None else real_engine(for_person())
            if given.reset:
                return print_outcome(commands.reset_locked(settings, used, make_client))
            return print_outcome(commands.enforce_source(settings, used, _source(settings)))
    except AgentError as exc:
        print(f"{_COMMAND}: {exc.message}", file=sys.stderr)
        return commands.exit_code_of(exc)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_COMMAND,
        description="Limit the bandwidth of each user AS's link at this attachment point.",
        epilog="Exit code 0 means that everything was done; 1 to 4 that something was not (docs/agent.md).",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-l", dest="enforce", action="store_true", help="enforce the limits of link_info.json")
    what.add_argument("-r", dest="reset", action="store_true", help="remove everything that we set")
    what.add_argument("-s", dest="show", action="store_true", help="show what the kernel has now")
    parser.add_argument(
        "-b",
        metavar="KBPS",
        help="store the bandwidth that all traffic of no link shares, in kbit/s (implies unmatched = default)",
    )
    parser.add_argument(
        "-p",
        metavar="FILE",
        type=Path,
        help=f"store the path of link_info.json (default: the agent's current bundle, else {STOCK_LINK_INFO})",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="the agent's configuration file")
    return parser


def _bandwidth(text: str | None) -> int | None:
    """The argument of -b. Raises `SettingsError`: a wrong number is a wrong command line."""
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
    """Keep what -b and -p set, and say so. Raises `StoreError`, `InputError`."""
    store = Store(settings.state_dir)
    operator = store.load_operator()
    said: list[str] = []
    if given.p is not None:
        commands.links_from_file(given.p)  # a path that cannot be used is not worth keeping
        operator = replace(operator, link_info=given.p.absolute())
        said.append(f"Stored: link_info.json is read from {operator.link_info}.")
    if default_kbit is not None:
        operator = replace(operator, default_bandwidth_kbit=default_kbit)
        said.append(
            f"Stored: all traffic that belongs to no link shares {format_kbit(default_kbit)} on each interface (this "
            f"wins over the configuration file; to undo it, delete {store.operator_file})."
        )
    if given.p is not None or default_kbit is not None:
        store.save_operator(operator)
        print("\n".join(said))


def _without_lock(
    given: argparse.Namespace, settings: Settings, engine: Engine | None, default_kbit: int | None
) -> int:
    """-s, and -b or -p alone: nothing that touches the kernel."""
    _store(given, settings, default_kbit)
    if not given.show:
        print(f"In force from the next `{_COMMAND} -l`, or after `systemctl reload {SERVICE}`.")
        return commands.OK
    used = engine if engine is not None else real_engine(for_person())
    return print_outcome(commands.show(settings, used, _source(settings), as_json=False))


def _source(settings: Settings) -> Source:
    """-p, now or stored; else the agent's current bundle; else where the stock client installs it."""
    stored = Store(settings.state_dir).load_operator().link_info
    if stored is not None:
        return commands.links_from_file(stored)
    return commands.stored_source(settings) or commands.links_from_file(STOCK_LINK_INFO)


if __name__ == "__main__":
    raise SystemExit(main())
