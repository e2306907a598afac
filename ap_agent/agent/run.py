"""The daemon `scionlab-bw-agent run`. The command handles arguments, logging and exit codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from ap_agent import __version__
from ap_agent.agent.agent import Agent
from ap_agent.agent.fetch import Client, make_client
from ap_agent.agent.health import health_path
from ap_agent.agent.limiter_view import state_path
from ap_agent.agent.loop import Loop
from ap_agent.agent.results import results_path
from ap_agent.agent.store import Store
from ap_agent.common.credentials import NewCredentials
from ap_agent.common.errors import AgentError, SettingsError, StoreError
from ap_agent.common.files import read_plain
from ap_agent.common.lock import Lock
from ap_agent.common.log import Logger
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.common.systemd import Notifier
from ap_agent.common.watch import Watch
from ap_agent.document.handover import FILE_NAME

_HEAD_BYTES = 64 * 1024


def run(
    settings: Settings,
    logger: Logger,
    environment: Mapping[str, str],
    *,
    load: Callable[[], Settings],
    broken: SettingsError | None = None,
) -> None:
    """Run until SIGTERM. `load` reads the settings again; `broken` says why the credentials are unusable: then the
    stored configuration is still handed over; without one, it is raised. Raises `AgentError`."""
    check_places(settings)

    def reload() -> tuple[Settings, Client | None]:
        fresh = load()
        check_places(fresh)
        return fresh, make_client(fresh)

    with Lock(settings.run_dir, "agent", "run") as lock:
        if broken is not None and not _has_bundle(settings):
            raise broken
        logger.info("agent.start", agent=__version__, url=settings.url)
        agent = Agent(settings, make_client(settings), logger)
        if broken is not None:
            agent.extra["settings"] = Problem("settings_invalid", "credentials", broken.message)
        watch = Watch([state_path(settings), results_path(settings), settings.state_dir / FILE_NAME])
        is_enrolled = broken is not None or bool(settings.url)
        new = NewCredentials(settings.credentials_file, environment, is_enrolled=is_enrolled)

        def follow_enrolment() -> None:
            if new.are_there():
                logger.info("agent.enrolled", credentials=new.path)
                (loop.stop if new.need_restart else loop.reload)()

        loop = Loop(
            agent,
            logger,
            notifier=Notifier(environment),
            watch=watch,
            reload=reload,
            keep_lock=lock.keep,
            each_check=follow_enrolment,
        )
        loop.install_signals()
        try:
            loop.run()
        finally:
            watch.close()


def _has_bundle(settings: Settings) -> bool:
    try:
        return Store(settings.state_dir).load(host_id=settings.host_id) is not None
    except AgentError:
        return False


# --- configured places must not be foreign ---------------------------------------------------------------------------


def check_places(settings: Settings) -> None:
    """Check that folders and files are the agent's. Raises `SettingsError` with the key and the remedy."""
    try:
        Store(settings.state_dir).check_place()
    except StoreError as exc:
        raise SettingsError(exc.message, key="state_dir") from exc
    except OSError as exc:
        raise SettingsError(
            f"state_dir = {settings.state_dir} cannot be used: {exc.strerror}.", key="state_dir"
        ) from exc
    _refuse_foreign(health_path(settings.run_dir), "run_dir", b'"agent_version"', "Choose another run_dir")
    path = settings.metrics_file
    if path is None:
        return
    if path == health_path(settings.run_dir) or path.is_relative_to(settings.state_dir):
        raise SettingsError(
            f"metrics_file = {path} is used by the agent for another purpose. Choose another file.",
            key="metrics_file",
        )
    remedy = "Name a file of its own, for example /run/scionlab-bw-agent/metrics.prom"
    _refuse_foreign(path, "metrics_file", b"scionlab_bw_agent_", remedy)


def _refuse_foreign(path: Path, key: str, mark: bytes, remedy: str) -> None:
    """The agent replaces this file: it must be missing, or contain `mark`."""
    if path.is_symlink():
        raise SettingsError(f"{key}: {path} is a symbolic link, which the agent would replace. {remedy}.", key=key)
    try:
        data = read_plain(path, _HEAD_BYTES)[0]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        raise SettingsError(f"{key}: {path} cannot be used: {exc.strerror}. {remedy}.", key=key) from exc
    if data and mark not in data:
        raise SettingsError(
            f"{key}: {path} was not written by the agent and would be overwritten. {remedy}, or delete that file "
            "if it is not needed.",
            key=key,
        )
