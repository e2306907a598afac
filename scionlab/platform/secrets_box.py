"""Encryption at rest: private keys are stored encrypted with SIGNING_SECRET, so a backup of the database does not
reveal them.

An app names its columns with `keep_encrypted`; the JSON of second factors has more. A
change of SIGNING_SECRET encrypts all of them again.
"""

from __future__ import annotations

import base64
import functools
from typing import Any, Final

from allauth.mfa.models import Authenticator
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.db import models

from bandwidth_config import RuleError

_COLUMNS: dict[type[models.Model], tuple[str, ...]] = {}
ROWS_AT_ONCE: Final = 500


def keep_encrypted(model: type[models.Model], *columns: str) -> None:
    """For `AppConfig.ready`: these columns hold what `sealed` returned."""
    _COLUMNS[model] = columns


def sealed(content: bytes) -> str:
    """Encrypt with the newest SIGNING_SECRET; ASCII."""
    return _box().encrypt(content).decode("ascii")


def opened(text: str, what: str) -> bytes:
    """Decrypt. `what` names the secret in the error. Raises `RuleError` (`secret_unreadable`)."""
    try:
        return _box().decrypt(text.encode("ascii"))
    except InvalidToken as exc:
        raise RuleError(
            "secret_unreadable",
            f"{what} cannot be decrypted: it was encrypted with another SIGNING_SECRET. Set that one again (or "
            "add it to SIGNING_SECRET_FALLBACKS).",
        ) from exc


def check_secret() -> None:
    """Call before a new secret is stored: encrypted with a wrong SIGNING_SECRET, it would be lost when the right one is
    restored. Judged by the newest secret of the column named first: the signing keys', which every site has. One
    statement. Raises `RuleError` (`secret_unreadable`)."""
    model, (column, *_) = next(iter(_COLUMNS.items()))
    newest = model._default_manager.exclude(**{column: ""}).order_by("-pk").values_list("pk", column).first()
    if newest is not None:
        opened(newest[1], f"{model._meta.verbose_name} {newest[0]}")


def rewrap() -> int:
    """Encrypt all of them with the newest SIGNING_SECRET, in a transaction. Return the number of secrets. Raises
    `RuleError` (`secret_unreadable`)."""
    return sum(_rewrap(model, columns) for model, columns in _COLUMNS.items()) + _rewrap_second_factors()


def _rewrap(model: type[models.Model], columns: tuple[str, ...]) -> int:
    count = 0
    # Locked, so that a key replaced meanwhile is not overwritten with its previous value.
    rows: list[Any] = list(model._default_manager.select_for_update(no_key=True).order_by("pk").only("pk", *columns))
    for row in rows:
        for column in columns:
            text = getattr(row, column)
            if text:  # empty: the key was deleted
                setattr(row, column, sealed(opened(text, f"{model._meta.verbose_name} {row.pk}")))
                count += 1
    model._default_manager.bulk_update(rows, columns, batch_size=ROWS_AT_ONCE)
    return count


def _rewrap_second_factors() -> int:
    rows = list(Authenticator.objects.select_for_update(no_key=True).exclude(type="webauthn").order_by("pk"))
    for row in rows:
        name = "secret" if row.type == "totp" else "seed"
        row.data[name] = sealed(opened(row.data[name], f"The second factor {row.pk}"))
    Authenticator.objects.bulk_update(rows, ["data"], batch_size=ROWS_AT_ONCE)
    return len(rows)


def _box() -> MultiFernet:
    return _box_of((settings.SIGNING_SECRET, *settings.SIGNING_SECRET_FALLBACKS))


@functools.lru_cache(maxsize=4)
def _box_of(secrets: tuple[str, ...]) -> MultiFernet:
    """Encrypts with the first secret, decrypts with any."""

    def fernet(secret: str) -> Fernet:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"scionlab signing keys/1").derive(
            secret.encode()
        )
        return Fernet(base64.urlsafe_b64encode(derived))

    return MultiFernet([fernet(secret) for secret in secrets])
