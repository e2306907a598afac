"""User accounts; the email address is the login name."""

from __future__ import annotations

from datetime import tzinfo
from functools import cache
from typing import Any, ClassVar
from zoneinfo import available_timezones

from django.apps import apps
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models.functions import Lower

from scionlab.platform.clock import database_now
from scionlab.platform.notation.local_time import zone_of

DEFAULT_AS_QUOTA = 5


class MailKind(models.TextChoices):
    """Mails about events, which a user can unsubscribe from by kind. Other mails (a requested link) have no kind."""

    ENFORCED = "enforced", "An attachment point has enforced a change of one of my limits"
    CLAMPED = "clamped", "A maximum was lowered below my limit, or raised again"
    CHANGED = "changed", "Someone else changed one of my limits, or cancelled a temporary limit"
    FAILED = "failed", "One of my limits has failed for more than 10 minutes"
    AWAY = "away", "An attachment point of mine has sent no report for more than an hour, or reports again"
    TESTED = "tested", "A test that I scheduled has ended, or was not carried out"


@cache
def _zones() -> frozenset[str]:
    """All zones of this machine, cached: `available_timezones` opens 600 files (20 ms)."""
    return frozenset(available_timezones())


@cache
def time_zone_names() -> tuple[str, ...]:
    """The zones to choose from, sorted: those named after places (`Europe/Zurich`), and UTC."""
    legacy = ("Etc/", "SystemV/", "US/", "Brazil/", "Canada/", "Chile/", "Mexico/")
    places = (name for name in _zones() if "/" in name and not name.startswith(legacy))
    return ("UTC", *sorted(places))


def validate_time_zone(name: str) -> None:
    """Also accepts older names that are not offered, e.g. `US/Pacific` from a program."""
    if name not in _zones():
        text = f'"{name[:64]}" is not a time zone. Choose one from the list, for example Europe/Zurich.'
        raise ValidationError(text, code="time_zone_unknown")


def validate_mail_kinds(kinds: object) -> None:
    if not isinstance(kinds, list) or not set(map(str, kinds)) <= set(MailKind.values):
        known = ", ".join(MailKind.values)
        raise ValidationError(f"Unknown kind of email. Known kinds: {known}.", code="mail_kind_unknown")


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Store the address in lower case, so that case does not matter."""
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.full_clean(exclude=["password"])
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)

    def get_by_natural_key(self, username: str | None) -> User:
        return self.get(email=(username or "").lower())


class User(AbstractBaseUser, PermissionsMixin):
    email = models.EmailField("email address", unique=True)
    full_name = models.CharField(max_length=150, blank=True)
    is_staff = models.BooleanField("administrator", default=False, help_text="Can use the administrators' pages.")
    is_active = models.BooleanField(default=True)
    as_quota = models.PositiveSmallIntegerField(
        "AS quota", default=DEFAULT_AS_QUOTA, help_text="Maximum number of user ASes of this account."
    )
    date_joined = models.DateTimeField(default=database_now)
    time_zone = models.CharField(
        max_length=64,
        default="UTC",
        validators=[validate_time_zone],
        help_text="Used for times on pages and in emails.",
    )
    # Opt-outs, so that new kinds of mail reach everyone by default.
    mail_opt_outs = models.JSONField(default=list, blank=True, validators=[validate_mail_kinds])

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email"]
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_once_whatever_case")]

    def __str__(self) -> str:
        return self.email

    @property
    def tz(self) -> tzinfo:
        """Zone in which times are shown."""
        return zone_of(self)

    def accepts_mail(self, kind: str) -> bool:
        """Whether a mail of this `MailKind` may be sent; "" is always sent."""
        return kind == "" or (self.is_active and kind not in self.mail_opt_outs)

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save; a new password also revokes API tokens (Django ends the sessions)."""
        is_new_password = (
            getattr(self, "_password", None) is not None and self.pk is not None
        )  # not for a better hash of the same password
        super().save(*args, **kwargs)
        if is_new_password:
            apps.get_model("accounts", "ApiToken").objects.filter(user_id=self.pk).delete()
            # Cancels pending changes of the email address, which someone else may have requested.
            asked = apps.get_model("accounts", "Mail").objects.filter(user_id=self.pk, used_at=None)
            asked.exclude(purpose="").update(used_at=database_now())

    def clean(self) -> None:
        super().clean()
        self.email = self.email.lower()
