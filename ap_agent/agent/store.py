"""The state directory: accepted bundles, and a symlink to the current one.

    <state_dir>/                mode 0750: the limiter's group reads document.json (`hand_over`)
        current -> versions/1.18-7-0f3a9b2c
        versions/               mode 0700: a stored manifest contains the host's secret
        versions/1.18-7-0f3a9b2c/scionlab-config.json
        versions/1.18-7-0f3a9b2c/etc/scion/link_info.json
        trust.json              trusted keys, and the newest accepted version (`document.trust`)
        accepted.json           stored by `accept` or `accept-older`, until it is used
        held.json               the configuration that is held back (`hold`)
        tests/                  reports of tests that send, until the service has them (`kept_reports`)
        usage.sqlite            usage of links (`usage.spool`)

A bundle is written completely under a temporary name, with fsync of each file and folder, and renamed; then trust.json
is replaced; then the symlink is switched by a rename. After a kill at any point `current` is a complete bundle, and
`document.trust` handles either trust.json. A bundle on disk gets the same checks as one from the network, and its name
contains a hash of its content.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ap_agent.agent.archive import DEFAULT_LIMITS, MANIFEST, check_name
from ap_agent.agent.bundle import UNSIGNED, Bundle, check_members
from ap_agent.agent.hold import Hold, hold_of
from ap_agent.common.errors import AgentError, BundleError, NotPermittedError, StoreError
from ap_agent.common.files import read_plain, sealed, sync_folder, unsealed, write_atomically
from ap_agent.common.ownership import as_owner_of
from ap_agent.document.trust import Acceptance, Trust, load_acceptance, load_trust
from contract.link_info import LinkInfo

KEPT_VERSIONS = 3
_MAX_JSON_BYTES = 8 * 1024 * 1024
_UNFINISHED = ".unfinished-"
_VERSION = re.compile(r"[0-9]+\.[0-9]+-(none|[0-9]+)-[0-9a-f]{8}(-unsigned)?", re.ASCII)  # `Bundle.name`
_MODE = 0o750
_OUR_NAME = re.compile(
    r"(current|versions|usage|tests|\.?(trust|accepted|operator|held|document|looks)\.json)"
    r"(\.new|\.scionlab-bw-new|\.aside-[0-9a-f]{8})?"
    r"|usage\.sqlite(-wal|-shm|-journal|\.damaged)?"
)


class Store:
    """One state directory. Reading never creates or changes anything. Every method raises `StoreError`, and those that
    read `NotPermittedError` without access."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = folder / "versions"
        self._current = folder / "current"

    # --- the current bundle -----------------------------------------------------------------------------------------

    def load(self, *, host_id: str | None) -> Bundle | None:
        """The last good bundle; None if none was ever stored. A corrupt one is a `StoreError` that names it."""
        try:
            target = self._current.readlink()
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unreadable(self._current, exc) from exc
        folder = self._versions / target.name
        try:
            bundle = check_members(_read_tree(folder), host_id=host_id)
        except BundleError as exc:
            raise StoreError(f"The stored bundle {folder} cannot be used: {exc.message}") from exc
        except OSError as exc:
            raise _unreadable(folder, exc) from exc
        if target.name.endswith(UNSIGNED):
            bundle = bundle.unsigned()
        if bundle.name != target.name:
            raise StoreError(f"The stored bundle {folder} is damaged: its content is that of {bundle.name}.")
        return bundle

    def is_there(self) -> bool:
        """Whether there is a current bundle. Cheap: the content is not read."""
        try:
            return (self._current / MANIFEST).is_file()
        except OSError:
            return False

    def save(self, bundle: Bundle, trust: Trust | None = None) -> None:
        """Make `bundle` the current one, durably, together with `trust`. After an error the previous one is still
        current and intact."""
        with as_owner_of(self.folder):
            try:
                self._prepare()
                self._write(bundle)
                if trust is not None:
                    self._write_json(self.trust_file, trust.to_json())
                self._switch(bundle.name)
            except OSError as exc:
                text = f"The bundle {bundle.version} cannot be stored in {self.folder}: {_said(exc)}."
                raise StoreError(f"{text} The previous one is kept.") from exc
            with contextlib.suppress(OSError):  # pruned later; the bundle is stored
                self._prune(bundle.name)

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
        if foreign and not self._is_marked():
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

    def _is_marked(self) -> bool:
        """Whether an agent stored its state here, whatever else is in the folder."""
        try:
            return self._current.readlink().parent == Path("versions")
        except OSError:
            return self.trust_file.is_file() and self._versions.is_dir()

    def _prepare(self) -> None:
        self.check_place()
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self.folder.parent)
        if stat.S_IMODE(self.folder.stat().st_mode) != _MODE:  # independent of the unit's umask
            self.folder.chmod(_MODE)
        if not self._versions.is_dir():
            self._versions.mkdir(mode=0o700)
            sync_folder(self.folder)
        for left in self._versions.glob(f"{_UNFINISHED}*"):  # of a killed process
            shutil.rmtree(left)

    def _write(self, bundle: Bundle) -> None:
        final = self._versions / bundle.name
        if _holds(final, bundle):
            return
        unfinished = self._versions / f"{_UNFINISHED}{bundle.name}"
        _write_tree(unfinished, bundle)
        if final.exists():  # same name, so the same content, but damaged since
            damaged = self._versions / f"{_UNFINISHED}damaged-{bundle.name}"
            final.rename(damaged)
        unfinished.rename(final)
        sync_folder(self._versions)

    def _switch(self, name: str) -> None:
        new = self.folder / "current.new"
        for path in (new, self._current):
            _set_aside(path)
        new.unlink(missing_ok=True)
        new.symlink_to(Path("versions") / name)
        new.replace(self._current)
        sync_folder(self.folder)

    def _prune(self, current: str) -> None:
        stored = [one for one in self._versions.iterdir() if _VERSION.fullmatch(one.name) and one.name != current]
        stored.sort(key=lambda one: one.stat().st_mtime, reverse=True)
        for old in stored[KEPT_VERSIONS - 1 :]:
            shutil.rmtree(old)

    # --- what counts ------------------------------------------------------------------------------------------------

    @property
    def trust_file(self) -> Path:
        return self.folder / "trust.json"

    @property
    def acceptance_file(self) -> Path:
        return self.folder / "accepted.json"

    def load_trust(self) -> Trust | None:
        """Stored with the last bundle; None if none."""
        return load_trust(self.folder)

    def save_trust(self, trust: Trust) -> None:
        """Store it without a bundle: after a repair."""
        self._save_json(self.trust_file, trust.to_json())

    def load_acceptance(self) -> Acceptance | None:
        """Stored by `accept-older` and not used yet."""
        return load_acceptance(self.folder)

    def save_acceptance(self, acceptance: Acceptance) -> None:
        self._save_json(self.acceptance_file, acceptance.to_json())

    def drop_acceptance(self) -> None:
        """Best effort: once another bundle is installed, a leftover acceptance has no effect."""
        with as_owner_of(self.folder), contextlib.suppress(OSError):
            self.acceptance_file.unlink(missing_ok=True)

    @property
    def hold_file(self) -> Path:
        return self.folder / "held.json"

    def load_hold(self) -> Hold | None:
        """The configuration that is held back, if any. A damaged file counts as none: the hold restarts."""
        try:
            return hold_of(unsealed(read_plain(self.hold_file, _MAX_JSON_BYTES)[0]))
        except (OSError, ValueError):
            return None

    def save_hold(self, hold: Hold) -> None:
        self._save_json(self.hold_file, hold.to_json())

    def drop_hold(self) -> None:
        """Best effort: a leftover hold belongs to another configuration, and has no effect."""
        with as_owner_of(self.folder), contextlib.suppress(OSError):
            self.hold_file.unlink(missing_ok=True)

    def _save_json(self, path: Path, document: dict[str, Any]) -> None:
        try:
            with as_owner_of(self.folder):
                self._prepare()
                self._write_json(path, document)
        except OSError as exc:
            raise StoreError(f"{path} cannot be written: {_said(exc)}.") from exc

    def _write_json(self, path: Path, document: dict[str, Any]) -> None:
        _set_aside(path)
        write_atomically(path, sealed(document), mode=0o600)


def stored_links(folder: Path, *, host_id: str | None) -> Mapping[int, LinkInfo]:
    """Names and addresses for tables; empty without access to the bundle."""
    try:
        bundle = Store(folder).load(host_id=host_id)
    except AgentError:
        return {}
    return bundle.links if bundle is not None else {}


# --- files ----------------------------------------------------------------------------------------------------------


def _set_aside(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))


def _write_tree(folder: Path, bundle: Bundle) -> None:
    for name, data in sorted(bundle.members.items()):
        check_name(name)  # checked again at the only place that turns names into paths
        path = folder / name
        for inner in reversed([one for one in path.parents if one.is_relative_to(folder) and not one.is_dir()]):
            inner.mkdir(mode=0o700)  # parents=True would use the default mode
        write_atomically(path, data, mode=0o600)
    for inner in [one for one in folder.rglob("*") if one.is_dir()]:
        sync_folder(inner)
    sync_folder(folder)


def _read_tree(folder: Path) -> dict[str, bytes]:
    members: dict[str, bytes] = {}
    total_bytes = 0
    for path in _files(folder):
        total_bytes += path.stat(follow_symlinks=False).st_size
        if len(members) >= DEFAULT_LIMITS.members or total_bytes > DEFAULT_LIMITS.unpacked_bytes:
            raise BundleError("it is larger than any bundle", code="unpacked_too_large")
        members[path.relative_to(folder).as_posix()] = path.read_bytes()
    if MANIFEST not in members:
        raise BundleError(f"It has no {MANIFEST}.", code="manifest_missing")
    return members


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BundleError(f'"{path.name}" is not a regular file.', code="member_kind")
        if path.is_file():
            yield path


def _holds(folder: Path, bundle: Bundle) -> bool:
    try:
        return _read_tree(folder) == dict(bundle.members)
    except (OSError, BundleError):
        return False


def _unreadable(path: Path, exc: OSError) -> AgentError:
    if isinstance(exc, PermissionError):
        return NotPermittedError(f"{path} cannot be read: {_said(exc)}. Run as root, or choose another state_dir.")
    return StoreError(f"{path} cannot be read: {_said(exc)}.")


def _said(exc: OSError) -> str:
    return exc.strerror or type(exc).__name__
