"""Rules for migrations that a running service survives: old code must work while and after one is applied.

A deployment applies migrations first and then replaces processes one by one (docs/operations.md), so for a while old
code meets new tables. Expand, then contract: what old code needs stays for one more version. And no lock may last as
long as reading a large table takes. An exception states its reason in the migration:

    class Migration(migrations.Migration):
        contract = "0.3 was the last version that read Link.speed"   # removes or renames what old code knows
        short_lock = "attachment points are a few dozens"            # locks a table for as long as reading it takes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from django.contrib.postgres import operations as postgres
from django.db import connection, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration, operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

Mark = Literal["contract", "short_lock"]


class AddIndexBeside(postgres.AddIndexConcurrently):
    """Builds the index concurrently if the database can; SQLite has one writer at a time anyway. The migration needs
    `atomic = False`. After an interruption PostgreSQL keeps an invalid index: drop it, and migrate again."""

    def database_forwards(self, *arguments: Any, **named: Any) -> None:
        _index_operation(*arguments).database_forwards(self, *arguments, **named)

    def database_backwards(self, *arguments: Any, **named: Any) -> None:
        _index_operation(*arguments).database_backwards(self, *arguments, **named)


def _index_operation(
    _app_label: str, schema_editor: BaseDatabaseSchemaEditor, *_states: ProjectState
) -> type[operations.AddIndex]:
    return postgres.AddIndexConcurrently if schema_editor.connection.vendor == "postgresql" else operations.AddIndex


_REMOVES: Final = (
    operations.RemoveField,
    operations.DeleteModel,
    operations.RenameField,
    operations.RenameModel,
    operations.AlterModelTable,
)
_READS_THE_TABLE: Final = (operations.AddConstraint, operations.AddIndex, operations.AlterUniqueTogether)
_WRITES_ROWS: Final = (operations.RunPython, operations.RunSQL)


@dataclass(frozen=True)
class Refusal:
    """An operation that needs another form, or the mark `mark` with its reason."""

    migration: str
    operation: str
    mark: Mark
    remedy: str

    def __str__(self) -> str:
        return f'{self.migration}: {self.operation}. {self.remedy}, or say why it is safe: {self.mark} = "..."'


def refusals(migration: Migration, before: ProjectState) -> list[Refusal]:
    """Problems of `migration`, applied to the state `before`. The first migration is always accepted: there is no old
    code."""
    if migration.initial:
        return []
    found = []
    state, made = before.clone(), set[str]()
    for operation in migration.operations:
        for mark, remedy in _judge(operation, migration, state, made):
            if not getattr(migration, mark, ""):
                found.append(Refusal(str(migration), operation.describe(), mark, remedy))
        if isinstance(operation, operations.CreateModel):
            made.add(operation.name_lower)  # no rows, and unknown to old code
        operation.state_forwards(migration.app_label, state)
    return found


def _judge(
    operation: Operation, migration: Migration, state: ProjectState, made: set[str]
) -> Iterator[tuple[Mark, str]]:
    model = str(getattr(operation, "model_name", "")).lower()
    if model and model in made:
        return
    match operation:
        case operations.SeparateDatabaseAndState():
            for inner in operation.database_operations:
                yield from _judge(inner, migration, state, made)
        case _ if isinstance(operation, _REMOVES):
            yield "contract", "Old code still uses it: stop using it in one version, and remove it in the next"
        case operations.AddField(field=field):
            if not field.null and field.db_default is models.NOT_PROVIDED and not field.many_to_many:
                yield "contract", "Old code inserts rows without it: give it db_default, or null=True"
        case operations.AlterField():
            yield from _judge_change(operation, migration, state)
        case postgres.AddIndexConcurrently() | postgres.AddConstraintNotValid():
            return
        case _ if isinstance(operation, _READS_THE_TABLE):
            yield (
                "short_lock",
                "Writers wait while the table is read: use AddIndexConcurrently or AddConstraintNotValid",
            )
        case _ if isinstance(operation, _WRITES_ROWS):
            yield "short_lock", "Rows stay locked until it ends: change them in pieces, in a task or a command"


def _judge_change(
    operation: operations.AlterField, migration: Migration, state: ProjectState
) -> Iterator[tuple[Mark, str]]:
    old = state.models[migration.app_label, operation.model_name_lower].fields[operation.name_lower]
    if old.null and not operation.field.null:
        yield "contract", "Old code writes NULL: stop that in one version, and forbid it in the next"
    if _column(old) != _column(operation.field):
        yield "short_lock", "The whole table is written anew: add a column, fill it in pieces, remove the old one later"


def _column(field: models.Field[Any, Any]) -> str | None:
    """The type of the column; of a relation, its target's."""
    if field.remote_field is not None:
        return f"-> {field.remote_field.model}".lower()
    return field.clone().db_type(connection)
