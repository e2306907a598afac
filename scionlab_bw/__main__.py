"""The command line: arguments, and errors on stderr with an exit code (scionlab-bw(1))."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from scionlab_bw import VERSION, account, commands, credentials, paths
from scionlab_bw.all_links import all_links
from scionlab_bw.client import Service
from scionlab_bw.errors import ClientError
from scionlab_bw.tables import STATES
from scionlab_bw.test_link import test_link
from scionlab_bw.units import format_seconds
from scionlab_bw.watch_load import watch_load
from terminal import clean

EPILOG = """\
LINK is a number (`scionlab-bw links`), the ISD-AS or label of an AS with one
Link, or AS@ATTACHMENT-POINT.
AS is a number (`scionlab-bw ases`), an ISD-AS or a label.
Bandwidths: 500 (kbit/s), 1.5M, 10 Mbit/s. Durations: 90, 30s, 15m, 2h, 1d.
Times: 18:30, 2026-11-22 18:30.
Exit codes: 0 done (watch-load: the Link was full; test: its limit is
            enforced), 1 refused (or not so), 2 usage error, 3 service not
            reachable, 4 not logged in or permission denied.
"""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="scionlab-bw",
        description="Bandwidth limits of your SCIONLab links.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"scionlab-bw {VERSION}")
    sub = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--json", action="store_true", help="print the JSON of the service")
    of_link = argparse.ArgumentParser(add_help=False, parents=[shared])
    of_link.add_argument("link", metavar="LINK")
    of_as = argparse.ArgumentParser(add_help=False, parents=[shared])
    of_as.add_argument("as_", metavar="AS")

    log_in = sub.add_parser("login", help="log in and store an API token")
    log_in.add_argument("url", nargs="?", default=os.environ.get(credentials.URL_VARIABLE), help="URL of the service")
    log_in.add_argument("--email", help="email address (default: prompt)")
    log_in.add_argument(
        "--token", action="store_true", help="prompt for a token from your profile page instead of a password"
    )
    sub.add_parser("logout", help="revoke and delete the stored token").set_defaults(run=account.logout)
    sub.add_parser("ases", help="list your ASes", parents=[shared]).set_defaults(run=commands.ases)
    name = sub.add_parser("rename", help="change the label of an AS", parents=[of_as])
    name.add_argument("label", metavar="LABEL")
    name.set_defaults(run=commands.rename)
    every = sub.add_parser("links", help="list your Links", parents=[shared])
    every.add_argument(
        "--state", choices=STATES, metavar="STATE", help="only Links in this state: " + ", ".join(STATES)
    )
    every.set_defaults(run=commands.list_links)
    sub.add_parser("show", help="show a Link", parents=[of_link]).set_defaults(run=commands.show)
    _add_set(sub.add_parser("set", help="set the limit of a Link, permanently or temporarily", parents=[of_link]))
    _add_set_all(sub.add_parser("set-all", help="set one limit for all Links of an AS", parents=[of_as]))
    _add_profile(sub.add_parser("profile", help="set a temporary limit with a profile"), shared)
    every_timed = sub.add_parser("timed", help="list the temporary limits of a Link", parents=[of_link])
    every_timed.add_argument("--all", action="store_true", help="include ended ones")
    every_timed.set_defaults(run=commands.timed)
    _add_cancel(sub.add_parser("cancel", help="cancel the running temporary limit", parents=[of_link]))
    used = sub.add_parser("usage", help="show the usage of a Link", parents=[of_link])
    used.add_argument("--last", default="1h", metavar="DURATION", help="period until now (default 1h)")
    used.add_argument("--step", choices=["10s", "5min", "day"], help="resolution (default: depends on the period)")
    used.add_argument("--csv", action="store_true", help="print CSV")
    used.set_defaults(run=commands.usage)
    _add_path(sub.add_parser("path", help="show the limits along SCION paths", parents=[shared]))
    sub.add_parser("paths", help="show what the Links of an AS carry together", parents=[of_as]).set_defaults(
        run=paths.paths
    )
    past = sub.add_parser("history", help="show the history of a Link", parents=[of_link])
    past.add_argument("--limit", type=int, default=20, metavar="N", help="maximum number of entries (default 20)")
    past.set_defaults(run=commands.history)
    wait = sub.add_parser("wait", help="wait until the limit is enforced", parents=[of_link])
    wait.add_argument("--timeout", default="60s", metavar="DURATION", help="maximum time to wait (default 60s)")
    wait.set_defaults(run=commands.wait)
    watch = sub.add_parser("watch", help="print a line for every change of the state", parents=[of_link])
    watch.add_argument("--once", action="store_true", help="print only the first line")
    watch.set_defaults(run=commands.watch)
    _add_watch_load(sub.add_parser("watch-load", help="find out whether a Link slows your traffic", parents=[of_link]))
    _add_test(sub.add_parser("test", help="send over a Link from this host and back", parents=[of_link]))
    return top


def _add_cancel(command: argparse.ArgumentParser) -> None:
    which = command.add_mutually_exclusive_group()
    which.add_argument("--id", type=int, help="cancel this one")
    which.add_argument("--all", action="store_true", help="cancel scheduled ones too")
    command.set_defaults(run=commands.cancel)


def _add_watch_load(command: argparse.ArgumentParser) -> None:
    command.add_argument("--for", dest="duration", default="60s", metavar="DURATION", help="5s to 10m (default 60s)")
    command.add_argument("--at", metavar="TIME", help="start (default: now)")
    command.set_defaults(run=watch_load)


def _add_test(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "tool", nargs="?", default="quick", metavar="TOOL", help="reach, quick (default), sizes, rates, tcp"
    )
    command.add_argument("--set", dest="parameters", action="append", default=[], metavar="NAME=VALUE")
    command.add_argument("--at", metavar="TIME", help="start (default: now)")
    command.add_argument("--id", type=int, metavar="N", help="run this end of a test that was scheduled on the page")
    command.add_argument("--bind", metavar="ADDRESS", help="address to send from (default: chosen by the route)")
    command.add_argument(
        "--all-links", action="store_true", help="test all Links of an AS, each alone, then together (LINK is the AS)"
    )
    command.set_defaults(run=_test)


def _test(service: Service, asked: argparse.Namespace) -> int:
    return all_links(service, asked) if asked.all_links else test_link(service, asked)


def _add_path(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "paths", metavar="FILE", help="output of `scion showpaths`, or sequences; - for standard input"
    )
    command.add_argument("--traceroute", metavar="FILE", help="output of `scion traceroute` along one of the paths")
    command.add_argument(
        "--test",
        metavar="TOOL",
        help="watch or test your own Links along the path, one after the other (watch, quick, …)",
    )
    command.add_argument(
        "--for", dest="duration", default="60s", metavar="DURATION", help="of each watch: 5s to 10m (default 60s)"
    )
    command.set_defaults(run=paths.path)


def _add_set_all(command: argparse.ArgumentParser) -> None:
    command.add_argument("bandwidth", metavar="BANDWIDTH", help="limit for both directions")
    command.set_defaults(run=commands.set_all)


def _add_set(command: argparse.ArgumentParser) -> None:
    command.add_argument("bandwidth", nargs="?", metavar="BANDWIDTH", help="limit for both directions")
    command.add_argument("--to", metavar="BANDWIDTH", help="limit to the user AS")
    command.add_argument("--from", dest="from_", metavar="BANDWIDTH", help="limit from the user AS")
    state = command.add_mutually_exclusive_group()
    state.add_argument("--active", action="store_true", default=None)
    state.add_argument("--inactive", dest="active", action="store_false", default=None)
    _add_length(command, required=False)
    command.set_defaults(run=commands.set_limits)


def _add_length(command: argparse.ArgumentParser, *, required: bool) -> None:
    length = command.add_mutually_exclusive_group(required=required)
    length.add_argument(
        "--for", dest="duration", metavar="DURATION", help="duration; then the regular limit is restored"
    )
    length.add_argument("--until", metavar="TIME", help="end; then the regular limit is restored")
    command.add_argument("--at", metavar="TIME", help="start (default: now)")


def _add_profile(command: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    command.add_argument("link", metavar="LINK")
    kinds = command.add_subparsers(dest="kind", required=True, metavar="KIND")
    limits = {"metavar": "BANDWIDTH[/BANDWIDTH]", "help": "to the user AS / from it", "required": True}
    constant = kinds.add_parser("constant", help="constant limit", parents=[shared])
    constant.add_argument("--limits", **limits)  # type: ignore[arg-type]  # argparse takes what it takes
    _add_length(constant, required=True)
    _add_length(kinds.add_parser("outage", help="nothing passes", parents=[shared]), required=True)
    stair = kinds.add_parser("stair", help="equal steps from one limit to another", parents=[shared])
    square = kinds.add_parser("square", help="two limits in turn", parents=[shared])
    for kind, names in ((stair, ("--start", "--end")), (square, ("--low", "--high"))):
        for name in names:
            kind.add_argument(name, **limits)  # type: ignore[arg-type]
        kind.add_argument("--at", metavar="TIME", help="start (default: now)")
    stair.add_argument("--steps", type=int, required=True, metavar="N")
    stair.add_argument("--step", required=True, metavar="DURATION", help="duration of each step")
    square.add_argument("--half-period", required=True, metavar="DURATION", help="duration of each half")
    square.add_argument("--cycles", type=int, required=True, metavar="N")
    command.set_defaults(run=commands.profile)


def main(arguments: Sequence[str] | None = None) -> int:
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115  to the end
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):  # a character that the terminal lacks
            stream.reconfigure(errors="backslashreplace")
    asked = parser().parse_args(arguments)
    try:
        code = _run(asked)
        sys.stdout.flush()
        return code
    except ClientError as exc:
        print(f"scionlab-bw: {clean(exc)}", file=sys.stderr)
        return exc.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as exc:  # of standard output; a reader that closed the pipe has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(exc, BrokenPipeError):
            return 0
        print(f"scionlab-bw: The result cannot be printed: {exc.strerror}.", file=sys.stderr)
        return ClientError.exit_code


def _run(asked: argparse.Namespace) -> int:
    if asked.command == "login":
        if asked.url is None:
            parser().error("login needs the URL of the service, for example https://scionlab.example.org")
        return account.login(asked)
    service = Service.of(credentials.load())
    try:
        return int(asked.run(service, asked))
    finally:
        if (off := service.clock_off_s) != 0:
            where = "behind" if off > 0 else "ahead of"
            print(
                f"scionlab-bw: This host's clock is {format_seconds(abs(off))} {where} the service's, which counts. "
                "Set it, for example with: timedatectl set-ntp true",
                file=sys.stderr,
            )


if __name__ == "__main__":
    sys.exit(main())
