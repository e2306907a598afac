"""`./dev demo`: the product's main job on one machine, with real packets.

A Coordination Service, an attachment point with its agent and some user ASes live in network namespaces. Limits are
entered in the real web form, reach the kernel through the real agent, and are measured with real traffic. It ends by
itself; the exit status is 0 only if every limit held within 2 % in both directions, every heartbeat arrived, the
bystander was not slowed, the links shared a total, and nothing of an observed link was refused.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lab.browser import PageError
from lab.demo import report, scion
from lab.demo.agent import DemoAgent
from lab.demo.client import run_client
from lab.demo.site import DemoSite
from lab.demo.traffic import Measured, measure
from lab.demo.without_root import show_without_root
from lab.demo.world import AP_DEFAULT_KBIT, PREFIX, SITE_ADDRESS, SITE_URL, USER_ASES, UserAs, World
from lab.folders import TemporaryFolder, remove_abandoned
from lab.forward import PortForward
from lab.running import until
from lab.serve import is_healthy
from lab.service import CoordinationService, ServiceError
from measuring.iproute import LabError, available, cleanup_stale
from measuring.netns import Lab

SAVE_TO_KERNEL_S = 1.0  # what the median of the changes must stay below
WATCHED_S = 5  # from 3 s after the button on, while traffic flows
CONFIRMED_DEADLINE_S = 30.0
LOWERED_DEFAULT_KBIT = 20_000
RAISED_KBIT = 4_000
TOTAL_KBIT = 12_000  # of 4,000 + 20,000: each gets half of its limit
KEEP_OPEN_PORT = 8000
MINIMUM_SECONDS, MAXIMUM_SECONDS = 3.0, 600.0  # the first second is not measured
CHANGED = (USER_ASES[1], USER_ASES[2], USER_ASES[3])  # raised, blocked, clamped by a lower default
SHARING = (USER_ASES[1], USER_ASES[3])
OBSERVED = USER_ASES[4]


Step = Callable[[str], None]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__)
    parser.add_argument(
        "--scion", action="store_true", help="run real SCION as configured by the service; needs ./dev scion, once"
    )
    parser.add_argument(
        "--seconds", type=_seconds, help="length of the long measurement (default: 7), or of the overload (60)"
    )
    parser.add_argument("--no-wait", action="store_true", help="do not offer to keep the site open at the end")
    options = parser.parse_args(arguments)
    missing = available()
    folder: TemporaryFolder | None = None
    try:
        with _progress() as step:
            _clean_up_after_killed(namespaces=missing is None)
            folder = TemporaryFolder(PREFIX)
            if missing is not None:
                return show_without_root(missing, folder.path, step)
            if options.scion:
                return scion.run(folder.path, step, options.seconds or 60.0)
            return _with_lab(options, folder.path, step)
    except (LabError, ServiceError, PageError, OSError) as exc:
        print(f"\nThe demo failed: {exc}", file=sys.stderr)
        if folder is not None:
            folder.keep()
            print(f"The logs of all parts are kept in {folder.path}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted; everything is removed.", file=sys.stderr)
        return 130
    finally:
        if folder is not None:
            folder.close()


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number") from None
    if not MINIMUM_SECONDS <= value <= MAXIMUM_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not from {MINIMUM_SECONDS:g} to {MAXIMUM_SECONDS:g}")
    return value


def _clean_up_after_killed(*, namespaces: bool) -> None:
    left = len(cleanup_stale(PREFIX)) if namespaces else 0
    folders = len(remove_abandoned(PREFIX))
    if left or folders:
        print(f"Removed the remains of a killed demo: {left} network namespaces, {folders} folder(s) of logs.")


def _with_lab(options: argparse.Namespace, folder: Path, step: Step) -> int:
    with Lab(PREFIX) as lab:
        step("Building the network: an attachment point, user ASes, a bystander, the service")
        world = World.build(lab)
        service = CoordinationService(
            folder / "service", bind="0.0.0.0:8000", site_url=SITE_URL, start_process=world.service.popen
        )
        try:
            step("Starting the Coordination Service (gunicorn, Celery worker and beat, SQLite; no Redis, no Docker)")
            service.prepare()
            site = DemoSite(service, world.service.call)
            host = site.set_up(sorted({user_as.owner for user_as in USER_ASES}))
            service.start(lambda: world.service.call(lambda: is_healthy(SITE_URL)))
            agent = DemoAgent(world.ap, folder / "agent", "usage_interval_s = 2\nlink_tests = true\n")
            step("The attachment point enrols with a one-time token; it will accept only what this key signed")
            print("\n".join(f"  {line}" for line in agent.enrol(host.token)[:2]))
            step("Starting the limiter (rights, no network) and the agent (network, no rights) on the attachment point")
            with closing(agent):
                agent.start()
                story = Story(site, agent, world, host.attachment_point_id, step)
                outcome = story.tell(options.seconds or 7.0)
                if sys.stdin.isatty() and not options.no_wait:
                    _keep_open(world, service)
            return outcome
        finally:
            service.stop()


@dataclass
class Story:
    """The demo's plot, told to the site, the agent and the wires."""

    site: DemoSite
    agent: DemoAgent
    world: World
    attachment_point_id: int
    step: Step
    verdicts: list[report.Verdict] = field(default_factory=list)
    watches: list[dict[str, Any]] = field(default_factory=list)

    def tell(self, seconds: float) -> int:
        """Returns the exit status. Raises what its parts raise."""
        self._create()
        self._measure(USER_ASES, seconds, watched=USER_ASES[0])
        self.verdicts.append(report.judge_idle(self.agent))
        self._test(USER_ASES[0])
        self._change()
        self._measure(CHANGED, max(4.0, seconds - 2))
        self._share(max(5.0, seconds - 2))
        self._observe(max(4.0, seconds - 3))
        print(report.summary(self.verdicts))
        return 0 if all(verdict.holds for verdict in self.verdicts) else 1

    def _create(self) -> None:
        self.step(f"Seven user ASes are created in the web form, with limits up to {AP_DEFAULT_KBIT:,} kbit/s")
        for user_as in USER_ASES:
            self.site.create_user_as(user_as, self.attachment_point_id)
        _wait_until_stage(self.site, USER_ASES, "enforced")

    def _measure(self, user_ases: tuple[UserAs, ...], seconds: float, *, watched: UserAs | None = None) -> None:
        self.step(f"Traffic far above the limits over {len(user_ases)} links, both directions at once, {seconds:g} s")
        where = "" if watched is None else self.site.watch(watched, WATCHED_S)
        if watched is not None:
            _wait_until(lambda: self.site.tested(watched, where)["state"] == "running", "the watch does not run")
        measured = self._measured(user_ases, seconds)
        print(report.table(self.site, self.agent, measured))
        self.verdicts += report.judge(self.site, measured)
        if watched is not None:
            self._judge_watch(watched, where)

    def _judge_watch(self, watched: UserAs, where: str) -> None:
        _wait_until(lambda: self.site.tested(watched, where)["state"] == "finished", "the watch is not finished")
        self.watches.append(self.site.tested(watched, where))
        self.verdicts.append(report.judge_watch(watched, self.watches[-1]))

    def _test(self, user_as: UserAs) -> None:
        self.step(f"{user_as.label} tests the link, which is idle now: `scionlab-bw test` on the host of the AS")
        link = str(self.site.link(user_as)["id"])
        host = self.world.users[user_as.host_name]
        code, said = run_client(host, self.site.token(user_as.owner), "test", link, "quick", "--set", "seconds=3")
        self.verdicts.append(report.judge_test(user_as, code, said))
        if number := re.match(r"Test ([0-9]+) ", said):
            tests = [*self.watches, self.site.tested(user_as, f"/api/v1/tests/{number[1]}/")]
            print(report.tests_table(user_as, tests))

    def _measured(self, user_ases: tuple[UserAs, ...], seconds: float) -> Measured:
        ap_ports = {user_as.label: int(self.site.link(user_as)["attachment_point_port"]) for user_as in user_ases}
        return measure(self.world, user_ases, seconds=seconds, ap_ports=ap_ports)

    def _share(self, seconds: float) -> None:
        names = " and ".join(user_as.label for user_as in SHARING)
        self.step(
            f"The administrator caps all links together at {TOTAL_KBIT:,} kbit/s; {names} send above their limits, "
            f"{seconds:g} s"
        )
        self.site.set_ap_total(self.attachment_point_id, TOTAL_KBIT)
        _wait_until(lambda: self.site.status(SHARING[0])["total"]["is_in_force"], "the total is not in force")
        measured = self._measured(SHARING, seconds)
        print(report.total_text(self.site, measured, TOTAL_KBIT))
        self.verdicts += report.judge_total(self.site, measured, TOTAL_KBIT)

    def _observe(self, seconds: float) -> None:
        self.step(f"{OBSERVED.label}'s link is only observed from now on: measured, nothing refused; {seconds:g} s")
        self.site.observe(OBSERVED)
        _wait_until_stage(self.site, (OBSERVED,), "observed")
        interface_id = int(self.site.link(OBSERVED)["attachment_point_interface_id"])
        before = self.agent.refused(interface_id)
        measured = self._measured((OBSERVED,), seconds)
        counted = self.agent.refused(interface_id) - before
        print(report.observed_text(self.site, self.agent, measured, counted))
        self.verdicts += report.judge_observed(self.site, self.agent, measured, counted)

    def _change(self) -> None:
        raised, blocked, clamped = CHANGED
        took_s = []
        self.step(f"{raised.label} changes the limit in the form from {raised.kbit:,} to {RAISED_KBIT:,} kbit/s")
        took_s.append(self._timed(raised, RAISED_KBIT, lambda: self.site.change_limit(raised, RAISED_KBIT)))
        self.step(f"{blocked.label} blocks the link with 0")
        took_s.append(self._timed(blocked, 0, lambda: self.site.change_limit(blocked, 0)))
        self.step(f"The administrator lowers the attachment point's default to {LOWERED_DEFAULT_KBIT:,} kbit/s")
        took_s.append(
            self._timed(
                clamped,
                LOWERED_DEFAULT_KBIT,
                lambda: self.site.set_ap_default(self.attachment_point_id, LOWERED_DEFAULT_KBIT),
            )
        )
        self.verdicts.append(report.judge_changes(took_s, SAVE_TO_KERNEL_S))
        _wait_until_stage(self.site, CHANGED, "enforced")

    def _timed(self, user_as: UserAs, kbit: int, save: Callable[[], float]) -> float:
        took_s = self.agent.time_until_rate(self.site, user_as, kbit, save)
        print(report.change_line(user_as, kbit, took_s))
        return took_s


def _wait_until_stage(site: DemoSite, user_ases: tuple[UserAs, ...], stage: str) -> None:
    """Until the site itself says so of every link: the receipt closes the loop. Raises `LabError`."""
    for user_as in user_ases:
        _wait_until(partial(_is_at, site, user_as, stage), f"{user_as.label} is not {stage}")


def _is_at(site: DemoSite, user_as: UserAs, stage: str) -> bool:
    return bool(site.status(user_as)["stage"] == stage)


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    """Raises `LabError` with `what` was waited for."""
    until(condition, what, CONFIRMED_DEADLINE_S, pause_s=0.2)


def _keep_open(world: World, service: CoordinationService) -> None:
    try:
        answer = input("\nKeep the site open to view it in a browser on this machine? [y/N] ")
        if answer.strip().lower() not in {"y", "yes"}:
            return
        with _forwarded(world) as forward:
            print(report.keep_open_text(forward.local_port), flush=True)
            while True:
                service.check()
                time.sleep(1)
    except (EOFError, KeyboardInterrupt):  # Ctrl-D or Ctrl-C: the demo is over, and its outcome stands
        print()


def _forwarded(world: World) -> PortForward:
    """The site on port 8000 of this machine, or on a free port where somebody has that one."""
    try:
        return PortForward(world.service, SITE_ADDRESS, KEEP_OPEN_PORT)
    except OSError as exc:
        print(f"Port {KEEP_OPEN_PORT} of this machine is not available ({os.strerror(exc.errno or 0)}); using another.")
        return PortForward(world.service, SITE_ADDRESS, 0)


@contextmanager
def _progress() -> Iterator[Step]:
    """Says what happens now, with the time since the start: nobody should wonder whether it still runs."""
    started = time.monotonic()

    def step(text: str) -> None:
        print(f"\n[{time.monotonic() - started:5.1f} s] {text}", flush=True)

    # A lab turns SIGTERM into SystemExit by itself; without one (no root) the folder is to be removed anyway.
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    yield step


if __name__ == "__main__":
    sys.exit(main())
