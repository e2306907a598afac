"""Reads from PostgreSQL which rows a transaction holds, after each of its statements, and says what is out of order."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import connection, models

from scionlab.accounts.models import Mail, User
from scionlab.delivery.models import EnrolmentToken
from scionlab.enforcement.models import HostReceipt, LinkEnforcement, NoticeWatch
from scionlab.limits.models import DefaultChange, MaximumException
from scionlab.testbed.models import AS, ISD, AttachmentPoint, BandwidthPolicy, Host, Link, ServiceState, UserAS
from scionlab.usage.models import UsageBatch, UsageSeries
from scionlab.web.models import ApiRequest

# As `scionlab.testbed.locks` has it.
ORDER: list[type[models.Model]] = [
    ApiRequest,
    NoticeWatch,
    DefaultChange,
    MaximumException,
    BandwidthPolicy,
    ServiceState,
    User,
    ISD,
    AS,
    AttachmentPoint,
    Link,
    UserAS,
    Host,
    HostReceipt,
    LinkEnforcement,
    UsageBatch,
    UsageSeries,
    EnrolmentToken,
    Mail,
]
Row = tuple[int, int]  # place of its table in ORDER, primary key

_LOCKED = """
    SELECT t.{key} FROM pgrowlocks('public.{table}') AS l JOIN {table} AS t ON t.ctid = l.locked_row
    WHERE NOT l.modes <@ '{{For Key Share}}' ORDER BY 1"""


class RowLocks:
    """What one transaction after the other locked, in its order; `wrong` says what came too late."""

    def __init__(self, other: psycopg.Connection[Any]) -> None:
        self._other = other
        self._transaction = ""
        self._held: list[Row] = []
        self.wrong: list[str] = []
        self.count = 0

    def after_each_statement(
        self, execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
    ) -> Any:
        answer = execute(sql, params, many, context)
        if re.match(r"\s*(SELECT .* FOR |UPDATE|DELETE|INSERT|WITH)", sql, flags=re.DOTALL):
            self._look(sql)
        return answer

    def _look(self, sql: str) -> None:
        transaction = self._id_of_transaction()
        if transaction != self._transaction:
            self._transaction, self._held = transaction, []
        now = [row for place in range(len(ORDER)) for row in self._rows(place)]
        new = [row for row in now if row not in self._held]
        self.count += len(new)
        is_delete = re.match(r'\s*DELETE|UPDATE "\w+" SET "\w+" = NULL WHERE', sql)
        if not is_delete:  # what goes along with a deleted row is found in no order of ours
            self._judge(new, sql)
        self._held += new

    def _id_of_transaction(self) -> str:
        assert connection.connection is not None
        pid = connection.connection.info.backend_pid
        found = self._other.execute("SELECT backend_xid::text FROM pg_stat_activity WHERE pid = %s", [pid]).fetchone()
        return str(found and found[0])

    def _rows(self, place: int) -> Iterator[Row]:
        table, key = ORDER[place]._meta.db_table, ORDER[place]._meta.pk.column
        found = self._other.execute(_LOCKED.format(table=table, key=key))
        return ((place, int(row[0])) for row in found.fetchall())

    def _judge(self, new: list[Row], sql: str) -> None:
        # An INSERT that meets rows which are there takes them in the order of its own.
        if len(new) > 1 and "ORDER BY" not in sql and not sql.startswith("INSERT"):
            self.wrong.append(f"{len(new)} rows of {ORDER[new[0][0]].__name__} in no order: {sql[:200]}")
        for row in new:
            later = [held for held in self._held if held > row and not self._is_guarded(held, row)]
            if later:
                self.wrong.append(f"{self._name(row)} after {self._name(max(later))}: {sql[:200]}")

    def _is_guarded(self, held: Row, row: Row) -> bool:
        """Links in any order, where the attachment point's row is held: nobody else locks any of them."""
        links, aps = ORDER.index(Link), ORDER.index(AttachmentPoint)
        if (held[0], row[0]) != (links, links):
            return False
        ap = Link.objects.values_list("interface_a__AS__attachment_point", flat=True).get(pk=row[1])
        return (aps, ap) in self._held

    def _name(self, row: Row) -> str:
        return f"{ORDER[row[0]].__name__} {row[1]}"


@contextmanager
def recorded() -> Iterator[RowLocks]:
    """Records the transactions of this thread's connection."""
    params = connection.get_connection_params()
    wanted = {name: params[name] for name in ("dbname", "user", "password", "host", "port") if name in params}
    with psycopg.connect(**wanted, autocommit=True) as other:
        other.execute("CREATE EXTENSION IF NOT EXISTS pgrowlocks")
        locks = RowLocks(other)
        with connection.execute_wrapper(locks.after_each_statement):
            yield locks
