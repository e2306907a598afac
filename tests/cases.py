"""Tables of cases over one world: each case is reported by its name, and what it writes is undone.

`@table` is `@pytest.mark.parametrize` that makes the world once, in place of once for each case.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import pytest
from django.core import mail
from django.core.cache import cache
from django.db import connection, transaction
from pytest_django import Settings

from scionlab.accounts.last_use import TOKENS_USED
from scionlab.delivery.last_contact import CONTACTS
from scionlab.platform.redis_client import REST

TIMEOUT_S = 600  # of all cases together, on a busy machine


@contextmanager
def case(subtests: pytest.Subtests, name: object) -> Iterator[None]:
    """One case of a table: the others run although it fails, and find the database, the cache and the mails that it
    found. A test without a database has none of them to put back."""
    with subtests.test(str(name)), ExitStack() as undo:
        if connection.in_atomic_block:
            undo.enter_context(_undone())
        yield


@contextmanager
def _undone() -> Iterator[None]:
    with transaction.atomic():
        try:
            yield
        finally:
            transaction.set_rollback(True)
            cache.clear()
            mail.outbox.clear()
            CONTACTS._times.clear()
            TOKENS_USED._times.clear()
            REST._until = 0.0


def table(names: str | Sequence[str], values: Iterable[Any], ids: Any = None) -> Callable[..., Any]:
    """As pytest's decorator of this signature, in one test. Each case has copies of rows and browsers."""
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [_row(columns, row) for row in values]
    if ids is not None:
        told = ["-".join(str(ids(one)) for one in row.values()) for _, row in rows] if callable(ids) else ids
        rows = [(name, row) for name, (_, row) in zip(told, rows, strict=True)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        inner = getattr(test, "of_one_case", test)
        tables = [rows, *getattr(test, "tables", ())]
        given = {name for one in tables for name in one[0][1]}
        fixtures = [name for name in inspect.signature(inner).parameters if name not in given]

        def of_all(subtests: pytest.Subtests, **world: Any) -> None:
            for number, chosen in enumerate(product(*tables)):
                row = {name: value for _, one in chosen for name, value in one.items()}
                with case(subtests, "-".join(str(name) for name, _ in chosen)), ExitStack() as undo:
                    inner(**_copied(world, number, undo), **row)

        wanted = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in ["subtests", *fixtures]]
        of_all.__signature__ = inspect.Signature(wanted)  # type: ignore[attr-defined]  # pytest reads it
        of_all.of_one_case, of_all.tables = inner, tables  # type: ignore[attr-defined]  # for the next table
        of_all.__name__, of_all.__doc__, of_all.__module__ = test.__name__, test.__doc__, test.__module__
        of_all.pytestmark = [*getattr(test, "pytestmark", []), pytest.mark.timeout(TIMEOUT_S)]  # type: ignore[attr-defined]
        return of_all

    return decorate


def _row(columns: list[str], values: Any) -> tuple[str, dict[str, Any]]:
    name = getattr(values, "id", None) if isinstance(values, type(pytest.param())) else None
    if isinstance(values, type(pytest.param())):
        values = values.values if len(columns) > 1 else values.values[0]
    row = dict(zip(columns, values, strict=True)) if len(columns) > 1 else {columns[0]: values}
    return name or "-".join(str(value)[:60] for value in row.values()), row


def _copied(world: dict[str, Any], number: int, undo: ExitStack) -> dict[str, Any]:
    """What one case finds: no other one has changed it. What is pytest's is as new."""
    memo: dict[int, Any] = {}
    found = {name: copy.deepcopy(value, memo) if _is_ours(value) else value for name, value in world.items()}
    if "monkeypatch" in found:
        found["monkeypatch"] = undo.enter_context(pytest.MonkeyPatch.context())
    if "settings" in found:
        found["settings"] = Settings(_is_pytest_django=True)
        undo.callback(found["settings"]._finalize)
    if "tmp_path" in found:
        found["tmp_path"] = world["tmp_path"] / str(number)
        found["tmp_path"].mkdir()
    if "caplog" in found:
        found["caplog"].clear()
    for name in {"capsys", "capfd"} & found.keys():
        found[name].readouterr()
    return found


def _is_ours(value: object) -> bool:
    return type(value).__module__.split(".")[0] in {"builtins", "django", "scionlab", "tests"}
