"""Which document is accepted: signed by a trusted key, and not older than the accepted one.

Agent (a bundle) and limiter (the handed over document) each have their own trust.json, with the same rules. Trust
begins with the enrolment and follows each accepted document: its keys replace previous ones, its revocations are added.
trust.json is written before the document. After a crash in between, or if either file is lost or restored from a
backup, `trust_now` derives a state from which the next document is accepted:

    trust.json newer than the document  its keyring is used; the document that announced it verifies with it too
    both of one version                 the keys of both are used, which are equal except after a crash in between
    document newer than trust.json      the document's keyring is used: it was verified before it was stored
    no trust.json                       the enrolled keys and those of the document are used
    neither                             the enrolled keys are used
    another enrolment                   only its keys are used; revoked keys stay revoked
    no enrolment                        nothing is verified; the stored trust is kept for a later enrolment

The stored document is enforced whatever happened to its key since: the key was valid when it was accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ap_agent.common.errors import TrustError
from ap_agent.common.files import read_own, sealed, unsealed, write_atomically
from ap_agent.common.keys import TrustedKey, parse_keys
from ap_agent.common.settings import Settings
from ap_agent.document.signatures import Keyring, read_signed, verify
from ap_agent.document.signed_text import Signed, Version

SCHEMA = 1
TRUST_FILE = "trust.json"
ACCEPTANCE_FILE = "accepted.json"
MOST_GENERATIONS_AHEAD = 1_000_000  # a service raises its generation by one, after a restored backup
_MAX_JSON_BYTES = 8 * 1024 * 1024

T = TypeVar("T")


class Accepted(Protocol):
    """The attributes of a document that the rules use."""

    @property
    def host_id(self) -> str: ...
    @property
    def order(self) -> Version: ...
    @property
    def signed(self) -> Signed | None:
        """None if its keys were not verified."""


@dataclass(frozen=True)
class Trust:
    """Current trust. `host_id` and `enrolled` (key ids) identify its enrolment; nothing older than `newest` is
    accepted."""

    host_id: str | None
    enrolled: tuple[str, ...]
    keyring: Keyring
    newest: Version | None

    def after(self, accepted: Accepted) -> Trust:
        # Without a pinned key (allow_unsigned) the text was not verified: it must not be trusted later.
        signed = accepted.signed if self.enrolled else None
        keyring = self.keyring.follow(signed) if signed is not None else self.keyring
        return Trust(self.host_id, self.enrolled, keyring, accepted.order)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "host_id": self.host_id,
            "enrolled": list(self.enrolled),
            **self.keyring.to_json(),
            "newest": self.newest._asdict() if self.newest is not None else None,
        }


@dataclass(frozen=True)
class Acceptance:
    """The operator accepts configuration `version` (G.H) although `instead_of` is installed. It expires when something
    else is installed: a crash cannot leave it in force."""

    version: str
    instead_of: Version

    def covers(self, offered: Version, newest: Version) -> bool:
        return offered.configuration == self.version and newest == self.instead_of

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "version": self.version, "instead_of": self.instead_of._asdict()}


def trust_now(settings: Settings, stored: Trust | None, accepted: Accepted | None) -> Trust:
    """Derive current trust from the enrolment, the stored trust, and the last accepted document."""
    enrolled = tuple(sorted(one.key_id for one in settings.service_keys))
    if accepted is not None and settings.host_id is not None and accepted.host_id != settings.host_id:
        accepted = None
    if settings.url is None and stored is not None:
        return replace(stored, newest=_joined(stored.newest, accepted.order if accepted is not None else None))
    was_unsigned = stored is not None and not stored.enrolled  # then its text was not verified
    signed = accepted.signed if accepted is not None and enrolled and not was_unsigned else None
    order = accepted.order if accepted is not None else None
    revoked = stored.keyring.revoked if stored is not None else frozenset()
    if signed is not None:
        revoked |= signed.revoked
    keys: list[TrustedKey] = list(settings.service_keys)
    newest = order
    if stored is None and signed is not None:
        keys += signed.keys
    elif stored is not None and (stored.host_id, stored.enrolled) == (settings.host_id, enrolled):
        keys = list(stored.keyring.keys.values())
        newest = _joined(stored.newest, order)
        if signed is not None and order == stored.newest:
            keys = [*signed.keys, *keys]  # equal, except after a crash in between
        elif signed is not None and (stored.newest is None or order == newest):
            keys = list(signed.keys)
    return Trust(settings.host_id, enrolled, Keyring.of(keys, revoked), newest)


def _joined(one: Version | None, other: Version | None) -> Version | None:
    if one is None or other is None:
        return one or other
    return one.joined(other)


def verifier(settings: Settings, trust: Trust, now: datetime) -> Callable[[Mapping[str, Any]], Signed | None]:
    """The function that reads an offered signed text: with verification, unless the operator allows unsigned ones.
    Raises as `verify`."""
    return read_signed if settings.allow_unsigned else partial(verify, keyring=trust.keyring, now=now)


def jumps(generation: int, newest: Version | None) -> bool:
    """Whether a generation is so far ahead of the newest that accepting it would lock the host out: the service could
    not count up to it."""
    return generation > MOST_GENERATIONS_AHEAD + (newest.generation if newest is not None else 0)


def refuse_version(offered: Version, trust: Trust, accepted: Callable[[], Acceptance | None]) -> None:
    """Raises `TrustError` for a document older than the newest, or of a generation far ahead of it, unless the operator
    accepted it."""
    newest = trust.newest
    is_jump = jumps(offered.generation, newest)
    if not is_jump and (newest is None or not offered.is_older_than(newest)):
        return
    if is_accepted(offered, newest, accepted()):
        return
    accept = f" To accept this one anyway, run `scionlab-bw-agent accept-older {offered.configuration}` here."
    if is_jump:
        raise TrustError(
            f"The service offers configuration {offered}; {newest or 'none'} is installed here, and a generation may "
            f"be at most {MOST_GENERATIONS_AHEAD} ahead, because everything older would be refused from then on. "
            f"Correct the generation at the service.{'' if newest is None else accept}",
            code="version_jump",
        )
    raise TrustError(
        f"The service offers configuration {offered}; {newest} is installed here, and nothing older is accepted. If "
        f"the service was restored from a backup, run `manage.py raise_generation` there.{accept}",
        code="version_older",
    )


def is_accepted(offered: Version, newest: Version | None, acceptance: Acceptance | None) -> bool:
    """Whether the operator accepts this one in place of the installed one."""
    return acceptance is not None and newest is not None and acceptance.covers(offered, newest)


# --- on the disk ----------------------------------------------------------------------------------------------------


def load_trust(folder: Path) -> Trust | None:
    """Stored with the last document; None if none. Raises `StoreError`, `NotPermittedError`."""
    return _load(folder / TRUST_FILE, _trust, "It is repaired as far as possible.")


def save_trust(folder: Path, trust: Trust) -> None:
    """Raises `OSError`."""
    write_atomically(folder / TRUST_FILE, sealed(trust.to_json()), mode=0o600)


def load_acceptance(folder: Path) -> Acceptance | None:
    """Stored by `accept-older` and not used yet. Raises `StoreError`, `NotPermittedError`."""
    remedy = "Delete it, and run `accept-older` again if it is needed."
    return _load(folder / ACCEPTANCE_FILE, _acceptance, remedy)


def save_acceptance(folder: Path, acceptance: Acceptance) -> None:
    """Raises `OSError`."""
    write_atomically(folder / ACCEPTANCE_FILE, sealed(acceptance.to_json()), mode=0o600)


def _load(path: Path, read: Callable[[Mapping[str, Any]], T], remedy: str) -> T | None:
    """The seal detects damage, not forgery: a forger does not need this file."""

    def parse(data: bytes) -> T:
        document = unsealed(data)
        if document["schema"] != SCHEMA:
            raise ValueError("unknown schema")
        return read(document)

    return read_own(path, _MAX_JSON_BYTES, parse, remedy)


def _trust(document: Mapping[str, Any]) -> Trust:
    """The inverse of `Trust.to_json`."""
    keyring = Keyring.of(parse_keys(document["keys"]) if document["keys"] else (), document["revoked"])
    newest = Version.of(document["newest"]) if document["newest"] is not None else None
    return Trust(document["host_id"], tuple(document["enrolled"]), keyring, newest)


def _acceptance(document: Mapping[str, Any]) -> Acceptance:
    """The inverse of `Acceptance.to_json`."""
    return Acceptance(document["version"], Version.of(document["instead_of"]))
