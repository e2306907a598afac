"""The state of the service."""

from __future__ import annotations

from django.db import models


class ServiceState(models.Model):
    """State of the service. A single row."""

    id = models.PositiveSmallIntegerField(primary_key=True, default=1, editable=False)
    generation = models.PositiveIntegerField(
        "generation (G)",
        default=1,
        help_text="Raised when every host must fetch its configuration again (manage.py raise_generation).",
    )

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(id=1), name="service_state_is_one_row")]

    def __str__(self) -> str:
        return f"generation {self.generation}"
