"""A person with an account. Log-in is by e-mail address."""

from __future__ import annotations

from typing import Any, ClassVar

from django.apps import apps
from django.contrib.auth.base_user import AbstractBaseUser, BaseUserManager
from django.contrib.auth.models import PermissionsMixin
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

DEFAULT_AS_QUOTA = 5


class UserManager(BaseUserManager["User"]):
    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """E-mail addresses are kept in lower case: people do not remember how they once wrote theirs."""
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
    email = models.EmailField("e-mail address", unique=True)
    full_name = models.CharField(max_length=150, blank=True)
    is_staff = models.BooleanField("administrator", default=False, help_text="May use the admin pages.")
    is_active = models.BooleanField(default=True)
    as_quota = models.PositiveSmallIntegerField(
        "AS quota", default=DEFAULT_AS_QUOTA, help_text="How many user ASes this person may have."
    )
    date_joined = models.DateTimeField(default=timezone.now)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        ordering = ["email"]
        constraints = [models.UniqueConstraint(Lower("email"), name="user_email_once_whatever_case")]

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Another password ends what the former one opened: Django ends the sessions, and here the token goes."""
        is_new_password = (
            getattr(self, "_password", None) is not None and self.pk is not None
        )  # a better hash of the same sets none
        super().save(*args, **kwargs)
        if is_new_password:
            apps.get_model("authtoken", "Token").objects.filter(user_id=self.pk).delete()

    def clean(self) -> None:
        super().clean()
        self.email = self.email.lower()
