"""The state directory: the accepted bundle, and what belongs to it.

    <state_dir>/                mode 0750: the limiter's group reads document.json (`hand_over`)
        scionlab-bundle         a line of JSON (schema, whether it was verified, SHA-256), then the tarball as it came
        trust.json              trusted keys, and the newest accepted version (`document.trust`)
        accepted.json           stored by `accept` or `accept-older`, until it is used
        held.json               the configuration that is held back (`hold`)
        tests/                  reports of tests that send, until the service has them (`kept_reports`)
        usage.sqlite            usage of links (`usage.spool`)

Each file is replaced atomically and durably; trust.json first, then the bundle: `document.trust` handles a crash in
between. A bundle on disk gets the same checks as one from the network.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from ap_agent.agent.archive import Limits
from ap_agent.agent.bundle import Bundle, read_bundle
from ap_agent.agent.hold import Hold, hold_of
from ap_agent.common.errors import AgentError, BundleError, StoreError
from ap_agent.common.files import parse_json, read_own, read_plain, sealed, sync_folder, unsealed, write_atomically
from ap_agent.common.ownership import as_owner_of
from ap_agent.document.trust import ACCEPTANCE_FILE, TRUST_FILE, Acceptance, Trust, load_acceptance, load_trust
from contract.link_info import LinkInfo

SCHEMA = 1
_MAX_HEAD_BYTES = 1024
_MAX_FILE_BYTES = 33 * 1024 * 1024  # a tarball that unpacks to what `archive` allows
_MAX_JSON_BYTES = 8 * 1024 * 1024
_MODE = 0o750
_OUR_NAME = re.compile(
    r"(usage|tests|\.?(scionlab-bundle|(trust|accepted|operator|held|document|looks)\.json))"
    r"(\.scionlab-bw-new|\.aside-[0-9a-f]{8})?"
    r"|usage\.sqlite(-wal|-shm|-journal|\.damaged)?"
)


class Store:
    """One state directory. Reading never creates or changes anything. Every method raises `StoreError`, and those that
    read `NotPermittedError` without access."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bundle_file = folder / "scionlab-bundle"
        self.trust_file = folder / TRUST_FILE
        self.acceptance_file = folder / ACCEPTANCE_FILE
        self.hold_file = folder / "held.json"

    # --- the accepted bundle ----------------------------------------------------------------------------------------

    def load(self, *, host_id: str | None) -> Bundle | None:
        """The last good bundle; None if none was ever stored. A corrupt one is a `StoreError` that names it."""

        def parse(data: bytes) -> Bundle:
            line, _, tarball = data[:_MAX_HEAD_BYTES].partition(b"\n")
            head, tarball = parse_json(line), data[len(line) + 1 :]
            if head["schema"] != SCHEMA or head["sha256"] != hashlib.sha256(tarball).hexdigest():
                raise ValueError("it is damaged, or of another version of the agent")
            try:
                bundle = read_bundle(tarball, host_id=host_id, limits=Limits(compressed_bytes=len(tarball)))
            except BundleError as exc:
                raise ValueError(exc.message) from exc
            return bundle if head["is_verified"] is True else bundle.unsigned()

        return read_own(self.bundle_file, _MAX_FILE_BYTES, parse, "The service's next one replaces it.")

    def is_there(self) -> bool:
        """Whether there is a bundle. Cheap: the content is not read."""
        return self.bundle_file.is_file()

    def save(self, bundle: Bundle, trust: Trust | None = None) -> None:
        """Store `bundle`, and `trust` before it. After an error the previous one is intact."""
        digest = hashlib.sha256(bundle.data).hexdigest()
        head = {"schema": SCHEMA, "is_verified": bundle.signed is not None, "sha256": digest}
        try:
            if trust is not None:
                self.save_trust(trust)
            self._write(self.bundle_file, json.dumps(head).encode() + b"\n" + bundle.data)
        except StoreError as exc:
            raise StoreError(
                f"The bundle {bundle.version} cannot be stored: {exc.message} The previous one is kept."
            ) from exc

    # --- what belongs to it -----------------------------------------------------------------------------------------

    def load_trust(self) -> Trust | None:
        """Stored with the last bundle; None if none."""
        return load_trust(self.folder)

    def save_trust(self, trust: Trust) -> None:
        self._write(self.trust_file, sealed(trust.to_json()))

    def load_acceptance(self) -> Acceptance | None:
        """Stored by `accept-older` and not used yet."""
        return load_acceptance(self.folder)

    def load_hold(self) -> Hold | None:
        """The configuration that is held back, if any. A damaged file counts as none: the hold restarts."""
        try:
            return hold_of(unsealed(read_plain(self.hold_file, _MAX_JSON_BYTES)[0]))
        except (OSError, ValueError):
            return None

    def save_hold(self, hold: Hold) -> None:
        self._write(self.hold_file, sealed(hold.to_json()))

    def drop(self, path: Path) -> None:
        """Best effort: once another bundle is installed, a leftover acceptance or hold has no effect."""
        with as_owner_of(self.folder), contextlib.suppress(OSError):
            path.unlink(missing_ok=True)

    def _write(self, path: Path, data: bytes) -> None:
        """A folder in the place of the file is set aside."""
        try:
            with as_owner_of(self.folder):
                self._prepare()
                if path.is_dir() and not path.is_symlink():
                    path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))
                write_atomically(path, data, mode=0o600)
        except OSError as exc:
            raise StoreError(f"{path} cannot be written: {_said(exc)}.") from exc

    # --- the folder -------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Create the folder if missing."""
        try:
            if not self.folder.is_dir():
                self._prepare()
        except OSError as exc:
            raise StoreError(f"{self.folder} cannot be made: {_said(exc)}.") from exc

    def check_place(self) -> None:
        """Check that the folder is ours or empty: nothing in a foreign folder is written, deleted or given another
        mode. Raises `StoreError` with the remedy, `OSError`."""
        if not self.folder.is_dir():
            return
        names = {one.name for one in self.folder.iterdir()} - {"lost+found"}
        foreign = sorted(name for name in names if not _OUR_NAME.fullmatch(name))
        if foreign and not self.is_there():
            shown = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
            raise StoreError(
                f"state_dir = {self.folder} contains files of other programs ({shown}). Choose a folder that does "
                "not exist; the agent creates it.",
                retryable=False,
            )
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        if not names and mode & ~_MODE:
            raise StoreError(
                f"state_dir = {self.folder} is empty and open to other users (mode {mode:04o}), so it may belong "
                f"to another program. If it belongs to the agent, run `chmod 750 {self.folder}`; otherwise choose "
                "a folder that does not exist.",
                retryable=False,
            )

    def _prepare(self) -> None:
        self.check_place()
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
        if stat.S_IMODE(self.folder.stat().st_mode) != _MODE:  # independent of the unit's umask
            self.folder.chmod(_MODE)


def stored_links(folder: Path, *, host_id: str | None) -> Mapping[int, LinkInfo]:
    """Names and addresses for tables; empty without access to the bundle."""
    try:
        bundle = Store(folder).load(host_id=host_id)
    except AgentError:
        return {}
    return bundle.links if bundle is not None else {}


def _said(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__
