"""What `manage.py check_migrations` refuses, and what it lets pass."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.postgres.operations import AddConstraintNotValid, AddIndexConcurrently
from django.core.management import call_command
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ModelState, ProjectState

from scionlab.platform.migration_rules import refusals


def state() -> ProjectState:
    before = ProjectState()
    fields: list[tuple[str, models.Field[Any, Any]]] = [
        ("id", models.BigAutoField(primary_key=True)),
        ("kbit", models.IntegerField()),
        ("note", models.CharField(max_length=20, null=True)),
    ]
    before.add_model(ModelState("scionlab", "Link", fields))
    return before


def marks(*operations: Operation, **attributes: Any) -> list[str]:
    """The marks that a migration of these operations would need."""
    made = type("Migration", (migrations.Migration,), {"operations": list(operations), **attributes})
    return [refusal.mark for refusal in refusals(made("0002_x", "scionlab"), state())]


INDEX = models.Index(fields=["kbit"], name="by_kbit")
CHECK = models.CheckConstraint(condition=models.Q(kbit__gte=0), name="not_negative")


@pytest.mark.parametrize(
    ("operation", "mark"),
    [
        (migrations.RemoveField("link", "kbit"), "contract"),
        (migrations.RenameField("link", "kbit", "speed"), "contract"),
        (migrations.DeleteModel("Link"), "contract"),
        (migrations.RenameModel("Link", "Line"), "contract"),
        (migrations.AlterModelTable("link", "lines"), "contract"),
        (migrations.AddField("link", "active", models.BooleanField(default=True)), "contract"),
        (migrations.AlterField("link", "note", models.CharField(max_length=20)), "contract"),
        (migrations.AlterField("link", "kbit", models.BigIntegerField()), "short_lock"),
        (migrations.AddIndex("link", INDEX), "short_lock"),
        (migrations.AddConstraint("link", CHECK), "short_lock"),
        (migrations.RunPython(migrations.RunPython.noop), "short_lock"),
        (migrations.RunSQL("UPDATE scionlab_link SET kbit = 0"), "short_lock"),
        (migrations.SeparateDatabaseAndState([migrations.RemoveField("link", "kbit")], []), "contract"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Operation) else value,
)
def test_what_old_code_or_waiting_people_would_notice_is_refused(operation: Operation, mark: str) -> None:
    assert marks(operation) == [mark]
    assert marks(operation, **{mark: "0.3 was the last that used it"}) == []
    other = {"contract": "short_lock", "short_lock": "contract"}[mark]
    assert marks(operation, **{other: "a reason for something else"}) == [mark]
    assert marks(operation, initial=True) == []


@pytest.mark.parametrize(
    "operation",
    [
        migrations.AddField("link", "active", models.BooleanField(db_default=True)),
        migrations.AddField("link", "seen_at", models.DateTimeField(null=True)),
        migrations.AlterField("link", "kbit", models.IntegerField(help_text="other words")),
        migrations.AlterField("link", "kbit", models.IntegerField(null=True)),
        migrations.AlterModelOptions("link", {"ordering": ["pk"]}),
        migrations.CreateModel("New", [("id", models.BigAutoField(primary_key=True))]),
        AddIndexConcurrently("link", INDEX),
        AddConstraintNotValid("link", CHECK),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_nobody_notices_passes(operation: Operation) -> None:
    assert marks(operation) == []


def test_a_table_that_is_made_in_the_same_migration_has_no_rows_and_no_readers() -> None:
    new = migrations.CreateModel("New", [("id", models.BigAutoField(primary_key=True))])
    column = migrations.AddField("new", "kbit", models.IntegerField(default=0))
    assert marks(new, column, migrations.AddIndex("new", INDEX)) == []
    old = migrations.AddField("link", "more", models.IntegerField(default=0))
    assert marks(new, old) == ["contract"]


def test_a_refusal_names_the_migration_the_operation_and_the_remedy() -> None:
    made = type("Migration", (migrations.Migration,), {"operations": [migrations.RemoveField("link", "kbit")]})
    assert str(refusals(made("0002_x", "scionlab"), state())[0]) == (
        "scionlab.0002_x: Remove field kbit from link. Old code still uses it: stop using it in one version, and "
        'remove it in the next, or say why it is safe: contract = "..."'
    )


def test_the_migrations_of_this_version_pass() -> None:
    said = StringIO()
    call_command("check_migrations", stdout=said)
    assert said.getvalue().endswith("migrations can be applied while the previous version is running.\n")
