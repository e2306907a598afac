"""`scionlab-bw-limiter run`: composes the parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ap_agent.common.consent import sending_tests
from ap_agent.common.lock import Lock
from ap_agent.common.log import Logger
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.common.watch import Watch
from ap_agent.dataplane.engine import Engine
from ap_agent.document.handover import FILE_NAME
from ap_agent.document.live import LOOKS_FILE
from ap_agent.document.trust import ACCEPTANCE_FILE
from ap_agent.limiter.documents import Documents
from ap_agent.limiter.enforcing import Enforcer, utc_now
from ap_agent.limiter.events import Listener
from ap_agent.limiter.loop import Loop
from ap_agent.limiter.report import Report


def run(
    settings: Settings,
    reload: Callable[[], Settings],
    engine: Engine,
    lock: Lock,
    *,
    logger: Logger,
    notifier: Notifier,
) -> None:
    """Run until SIGTERM; the limits stay. Raises `AgentError` if kernel events are unavailable, `LockHeldError` if
    another limiter took over."""
    watched = (
        settings.state_dir / FILE_NAME,
        settings.state_dir / LOOKS_FILE,
        settings.limiter_state_dir / ACCEPTANCE_FILE,
    )
    report = Report(settings.limiter_run_dir, logger, utc_now)
    with contextlib.closing(Listener()) as events:
        loop = Loop(
            Enforcer(settings, engine, logger, report.keep, may_send=lambda now: sending_tests(now) == "on"),
            report,
            Documents(settings, utc_now),
            logger,
            events=events,
            watch=lambda: Watch(watched),
            notifier=notifier,
            reload=reload,
            keep_lock=lock.keep,
        )
        loop.install_signals()
        loop.run()
    engine.close()
