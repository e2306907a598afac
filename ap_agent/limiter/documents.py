"""Which document is enforced: the limiter's own copy of the last accepted one, then what the agent hands over.

    <limiter_state_dir>/document.json    the last accepted document, as handed over
    <limiter_state_dir>/trust.json       trusted keys, and the newest version (`document.trust`)
    <limiter_state_dir>/accepted.json    an older version that the operator accepts once

A document that cannot be accepted is a problem; the last accepted one stays. A document is enforced first and stored
then: after a crash in between the previous one is here, and the newer one still at the agent's.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from ap_agent.common.errors import AgentError, BundleError
from ap_agent.common.files import open_plain, read_plain, write_atomically
from ap_agent.common.ownership import as_owner_of
from ap_agent.common.problem import Problem
from ap_agent.common.settings import Settings
from ap_agent.document.handover import (
    FILE_NAME,
    MAX_BYTES,
    MAX_HEAD_BYTES,
    Document,
    Head,
    check_hash,
    read_document,
    read_head,
    read_links,
)
from ap_agent.document.signatures import read_stored
from ap_agent.document.trust import (
    ACCEPTANCE_FILE,
    Trust,
    load_acceptance,
    load_trust,
    refuse_version,
    save_trust,
    trust_now,
    verifier,
)
from contract.link_info import KnownEntries

REST_S = 0.1  # after one refusal; twice as long after each further one, up to
LONGEST_REST_S = 5.0


class Documents:
    """The accepted document, and acceptance of others. File contents never raise."""

    def __init__(self, settings: Settings, now: Callable[[], datetime]) -> None:
        self.settings = settings
        self.accepted: Document | None = None
        self.trust: Trust = trust_now(settings, None, None)
        self._now = now
        self._known: KnownEntries = {}
        self._handed: Head | None = None  # as accepted
        self._refusals = 0  # in a row
        self._must_store = False
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(self._problems.values())

    @property
    def _folder(self) -> Path:
        return self.settings.limiter_state_dir

    def load(self) -> None:
        """Load the own copy, whatever happened to its key since. Read-only."""
        path = self._folder / FILE_NAME
        try:
            data, _ = read_plain(path, MAX_BYTES)
            host_id = self.settings.host_id
            self.accepted = read_document(
                data, host_id=host_id, verify=read_stored, allow_unsigned=True, known=self._known
            )
        except FileNotFoundError:
            pass
        except OSError as exc:
            self._unusable("document", f"The stored document {path} cannot be read: {exc.strerror}.")
        except BundleError as exc:
            self._unusable("document", f"The stored document {path} cannot be used: {exc.message}")
        gc.freeze()
        self._load_trust()

    def _load_trust(self) -> None:
        stored: Trust | None = None
        try:
            stored = load_trust(self._folder)
        except AgentError as exc:
            self._unusable("trust", exc.message)
        self.trust = trust_now(self.settings, stored, self.accepted)
        self._must_store = self.trust != stored and ("trust" in self._problems or self.accepted is not None)

    def use(self, settings: Settings) -> None:
        self.settings = settings
        self.trust = trust_now(settings, self.trust, self.accepted)

    @property
    def rest_s(self) -> float:
        """How long the file is not read again: refused documents are looked at more and more seldom."""
        return min(LONGEST_REST_S, REST_S * 2.0 ** min(self._refusals, 10)) if self._refusals else 0.0

    def take(self) -> bool:
        """Read the handed over document; return whether another one is accepted now. Read-only. Nothing behind its head
        is read before that is verified, and nothing is parsed before its hash is."""
        path = self.settings.state_dir / FILE_NAME
        try:
            with open_plain(path, is_foreign=True) as stream:
                line = stream.readline(MAX_HEAD_BYTES + 1)
                is_same = self._handed is not None and self._handed.line == line
                head = self._handed if is_same and self._handed is not None else self._read_head(line)
                link_info = stream.read(MAX_BYTES + 1 - len(line))
            if is_same:
                check_hash(head, link_info)
            is_new = not is_same and self._accept(head, link_info)
        except FileNotFoundError:  # missing or removed: no reason to end a limit
            is_new = False
        except OSError as exc:
            return self._refuse(f"The document {path} cannot be read: {exc.strerror}.")
        except AgentError as exc:
            return self._refuse(exc.message)
        self._problems.pop("refused", None)
        self._refusals = 0
        return is_new

    def _read_head(self, line: bytes) -> Head:
        settings = self.settings
        head = read_head(
            line,
            host_id=settings.host_id,
            verify=verifier(settings, self.trust, self._now()),
            allow_unsigned=settings.allow_unsigned,
        )
        refuse_version(head.named.version, self.trust, lambda: load_acceptance(self._folder))
        return head

    def _accept(self, head: Head, link_info: bytes) -> bool:
        document = read_links(head, link_info, known=self._known)
        if self.settings.allow_unsigned:  # otherwise unverified keys could be found in it when trust.json is lost
            document = document.unsigned()
        self._handed = head
        if self.accepted is not None and document.data == self.accepted.data:
            return False
        self.trust = self.trust.after(document)
        self.accepted = document
        self._must_store = True
        self._problems.pop("document", None)
        gc.freeze()  # thousands of links are unchanged; comparing them again costs 40 ms per state written
        return True

    def _refuse(self, why: str) -> bool:
        self._refusals += 1
        self._problems["refused"] = Problem("document_refused", "document", f"{why} The current limits stay.")
        return False

    def keep(self) -> None:
        """Store the accepted document, unless it is stored; also if it was deleted."""
        if self.accepted is None and not self._must_store:
            return
        path = self._folder / FILE_NAME
        if not self._must_store and path.is_file():
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with as_owner_of(self._folder):
                save_trust(self._folder, self.trust)
                if self.accepted is not None:
                    write_atomically(path, self.accepted.data, mode=0o600)
                if self._must_store and self._handed is not None:  # not after a repair: that does not use it up
                    with contextlib.suppress(OSError):  # a leftover does not apply to later documents
                        (self._folder / ACCEPTANCE_FILE).unlink(missing_ok=True)
        except OSError as exc:
            self._unusable("store", f"The accepted document cannot be stored in {self._folder}: {exc.strerror}.")
            return
        self._must_store = False
        for key in ("store", "trust", "document"):
            self._problems.pop(key, None)

    def _unusable(self, key: str, message: str) -> None:
        self._problems[key] = Problem("state_unusable", str(self._folder), message)
