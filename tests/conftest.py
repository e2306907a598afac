"""What every test shares: which ones may run beside others; with SLBW_NO_SKIPS=1 (CI) a skipped one fails the run.

`./dev test` runs in several processes what is neither `long` nor `scion`; `./dev test --long` what is `long`, and then
one by one what is `alone`, which is always long too; `./dev test -m scion` what needs the real SCION programs.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.subtests import SubtestReport
from django.conf import settings as site_settings
from django.core.management import call_command
from django.db import connection, connections
from django.db.backends.base.operations import BaseDatabaseOperations
from django.db.backends.sqlite3.base import DatabaseOperations
from django.test import TransactionTestCase
from hypothesis import HealthCheck, settings
from playwright.sync_api import expect
from pytest_django.plugin import DjangoDbBlocker

from tests.cast import (  # noqa: F401  fixtures of the service
    _as_if_it_were_the_first,
    _no_messages,
    ap,
    ap_b,
    ap_other,
    door,
    host,
    host_a,
    host_b,
    link,
    owner,
    receipt,
    server,
    staff,
    stranger,
    teammate,
    user_as,
)
from tests.support.browser import admin_page, browser, page  # noqa: F401  fixtures

# Other tests have the processors too: a page that is refreshed every 2 s is sometimes drawn after 8.
expect.set_options(timeout=30_000)
# For the same reason an example may last as long as it does: a limit of 200 ms finds busy processors.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")
# A shell's background jobs ignore it, and so would each program that a test starts and ends with it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# They prove what is not there: ./dev test --core runs them.
collect_ignore = ["core"] if site_settings.SCIONLAB_EXTENSIONS else []

_skipped: list[str] = []
_seconds: Counter[str] = Counter()  # of each file, with setting up and taking down
SLOWEST_FILES = 20

# What `migrate` fills, and no test changes.
FILLED_ONCE = {"django_content_type", "auth_permission"}
# In the place of TRUNCATE, which makes the files of 60 tables anew, and of a further `post_migrate`. Triggers are off.
EMPTY = """
DO $$ DECLARE one text; BEGIN
  SET LOCAL session_replication_role = replica;
  FOREACH one IN ARRAY '{{{tables}}}'::text[] LOOP EXECUTE format('DELETE FROM %I', one); END LOOP;
END $$"""

OF_THE_KERNEL = ("tests/kernel/", "tests/faults/agent/")
# Kernel tests of one group run one after the other, in one process. They wait more than they compute, for packets and
# programs; the groups are as many as keep no process waiting in the end for a long one.
GROUPS = {
    "tests/e2e/test_ntap.py": "e2e, tests of links",  # half of all that share one running service, on one of its own
    "tests/e2e/": "e2e",
    "tests/faults/": "kernel, faults",
    "tests/kernel/test_limiter_": "kernel, limiter",
    "tests/kernel/test_agent_": "kernel, agent",
    "tests/kernel/test_routes.py": "kernel, agent",
    "tests/kernel/test_sending.py": "kernel, tests of links",
    "tests/kernel/test_station.py": "kernel, tests of links",
    "tests/kernel/test_sandbox.py": "kernel, tests of links",
    "tests/dataplane/": "kernel, data plane",
    "tests/kernel/test_selftest.py": "kernel, self-test",
    "tests/kernel/test_links.py": "kernel, data plane",
    "": "kernel",
}


# Whole programs beside each other, faults, measured rates, and what goes through everything: minutes, which CI has.
LONG = (
    "tests/e2e/",
    "tests/faults/",
    "tests/measured/",
    "tests/concurrency/test_embedded.py",
    "tests/contract/test_openapi.py::test_answers_are_as_described",  # 75 s of generated requests
    "tests/kernel/test_agent_cli.py",
    "tests/kernel/test_routes.py",
    "tests/kernel/test_sandbox.py",
    "tests/kernel/test_selftest.py",
    "tests/kernel/test_sending.py",
    "tests/kernel/test_station",
    "tests/cockpit/test_cockpit_browser.py",
    "tests/linktests/test_link_tests_axe.py",
    "tests/property/test_linear_readers.py",
    "tests/site/test_backups.py",
    "tests/site/test_extensions_alone.py",
    "tests/site/test_pages_axe.py",
    "tests/site/test_pages_policy.py",
    "tests/lab/test_seed_demo.py",
)


ROOT = Path(__file__).parents[1]
WHOLE = tuple(one for one in LONG if "::" not in one)
NOT_LONG, IS_LONG = "not long and not alone and not scion", {"long and not alone and not scion", "alone"}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Each process of `./dev test`, of `--long` and of `-m scion` imports the files that have tests of its part alone:
    to import all takes as long as some hundred tests."""
    name = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
    if not name.startswith("tests/") or collection_path.suffix != ".py":
        return None
    if config.option.markexpr == "scion":
        return not name.startswith("tests/scion/") or None
    if config.option.markexpr == NOT_LONG:
        return name.startswith((*WHOLE, "tests/scion/")) or None
    if config.option.markexpr in IS_LONG and not any(one.startswith(name) or name.startswith(one) for one in LONG):
        text = collection_path.read_text(encoding="utf-8")
        return not any(mark in text for mark in ("mark.long", "mark.alone")) or None
    return None


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist writes the groups down
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(OF_THE_KERNEL):
            item.add_marker(pytest.mark.kernel)
        if item.nodeid.startswith("tests/measured/"):
            item.add_marker(pytest.mark.alone)  # they measure rates and losses: other work would be measured as well
        if item.nodeid.startswith(LONG):
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("alone") is not None and item.get_closest_marker("long") is None:
            raise pytest.UsageError(f"{item.nodeid} is `alone`: mark it `long`, too; ./dev test runs none alone.")
        if item.nodeid.startswith("tests/scion/"):
            item.add_marker(pytest.mark.scion)
        if item.get_closest_marker("kernel") is not None:
            group = next(name for start, name in GROUPS.items() if item.nodeid.startswith(start))
            item.add_marker(pytest.mark.xdist_group(group))
        elif item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.xdist_group("browser"))  # Chromium starts once for a file, not in each process
        elif item.get_closest_marker("xdist_group") is not None:
            continue
        elif item.nodeid.startswith("tests/faults/service/"):
            # One process breaks the service, others do not wait.
            item.add_marker(pytest.mark.xdist_group("faults of the service"))
        elif _shares_a_world(item):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def _shares_a_world(item: pytest.Item) -> bool:
    """It has a fixture of its module, which each process would make again."""
    known = getattr(item, "_fixtureinfo", None)
    return known is not None and any(
        one.scope == "module" for several in known.name2fixturedefs.values() for one in several
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep what was imported out of garbage collection. Groups are kept together by their name in the test's id: a
    pytest that does not let pytest-xdist write it there would split them."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    if getattr(session.config.option, "loadgroup", False):
        split = [
            item.nodeid for item in session.items if item.get_closest_marker("xdist_group") and "@" not in item.nodeid
        ]
        if split:
            raise pytest.UsageError(
                f"pytest-xdist does not keep groups together, as of {split[0]}. See requirements/dev.in."
            )


# pytest-timeout ends a test once; a teardown that then hangs would keep the others waiting for ever.
HANGS_S = 480


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """End the process, with the stacks of its threads, if a test and its teardown take longer than `HANGS_S`."""
    _end_what_hangs(item.config)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)  # pytest's own takes the timer away with every failure
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    if isinstance(node, pytest.Item):
        _end_what_hangs(node.config)


def _end_what_hangs(config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(HANGS_S, exit=True, file=config.stash[fault_handler_stderr_fd_key])


@pytest.fixture(scope="session", autouse=True)
def _tables_emptied_row_by_row() -> Iterator[None]:
    """After each test that commits."""
    flush = TransactionTestCase._fixture_teardown

    def empty(self: TransactionTestCase) -> None:
        connection = connections["default"]
        if connection.vendor != "postgresql":
            flush(self)
            return
        tables = {*connection.introspection.django_table_names(only_existing=True, include_views=False)} - FILLED_ONCE
        with connection.cursor() as cursor:
            cursor.execute(EMPTY.format(tables=",".join(sorted(tables))))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(TransactionTestCase, "_fixture_teardown", empty)
        patched.setattr(DatabaseOperations, "execute_sql_flush", _flush_without_triggers)
        yield


def _flush_without_triggers(self: DatabaseOperations, sql_list: list[str]) -> None:
    """SQLite: the record of changes refuses to be emptied, and no trigger can be left out: they are made anew."""
    with self.connection.cursor() as cursor:
        cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        triggers = cursor.fetchall()
        for name, _ in triggers:
            cursor.execute(f"DROP TRIGGER {name}")
        BaseDatabaseOperations.execute_sql_flush(self, sql_list)
        for _, again in triggers:
            cursor.execute(again)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not isinstance(report, SubtestReport):  # its time is its test's as well
        _seconds[report.nodeid.partition("::")[0]] += report.duration
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if os.environ.get("SLBW_NO_SKIPS") == "1" and _skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if len(_seconds) > SLOWEST_FILES:
        terminalreporter.section(f"slowest {SLOWEST_FILES} of {len(_seconds)} files, {_seconds.total():.0f} s in all")
        for name, seconds in _seconds.most_common(SLOWEST_FILES):
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}")
    if _skipped and os.environ.get("SLBW_NO_SKIPS") == "1":
        terminalreporter.write_line(f"SLBW_NO_SKIPS=1: {len(_skipped)} skipped tests count as failures:", red=True)
        for name in _skipped:
            terminalreporter.write_line(f"  {name}")


# --- the database ---------------------------------------------------------------------------------------------

MIGRATED = "migrated"


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, django_db_blocker: DjangoDbBlocker
) -> None:
    """Of processes side by side the first one migrates a database; all of them copy it."""
    if connection.vendor != "postgresql" or "PYTEST_XDIST_WORKER" not in os.environ:
        return
    with django_db_blocker.unblock(), connection._nodb_cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", [MIGRATED])  # until this connection ends
        cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", [MIGRATED])
        if cursor.fetchone() is None:
            cursor.execute("CREATE DATABASE migrating")
            with _connected_to("migrating"):
                call_command("migrate", verbosity=0)
            cursor.execute(f"ALTER DATABASE migrating RENAME TO {MIGRATED}")
    connection.settings_dict["TEST"]["TEMPLATE"] = MIGRATED


@contextmanager
def _connected_to(name: str) -> Iterator[None]:
    connection.close()
    before, connection.settings_dict["NAME"] = connection.settings_dict["NAME"], name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before
