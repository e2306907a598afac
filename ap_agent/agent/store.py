"""The state directory: the bundles that were good, side by side, and one symlink that says which counts.

    <state_dir>/                mode 0700: the stored manifest holds the host's secret
        current -> versions/1.18-7-0f3a9b2c
        versions/1.18-7-0f3a9b2c/scionlab-config.json
        versions/1.18-7-0f3a9b2c/etc/scion/link_info.json
        trust.json              the keys that count, and the newest version that was taken (`belief`)
        accepted.json           what `accept` or `accept-older` stored, until it is taken
        held.json               the configuration that is held back (`vanished`)
        operator.json           what `scionlab_bw_limiter -b` and `-p` stored

A bundle is written completely, with fsync of each file and folder, under a name that nobody reads; then renamed; then
trust.json is replaced; then the symlink is switched by a rename. Whatever kills us in between, `current` points to a
complete bundle, and `belief` says why either trust.json does.
Reading trusts nothing: the bundle on disk goes through the same checks as one from the network, and its name holds a
hash of its content.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ap_agent.agent.hold import Hold, hold_of
from ap_agent.common.errors import AgentError, BundleError, NotPermittedError, StoreError
from ap_agent.common.files import parse_json, read_plain
from ap_agent.common.ownership import as_owner_of
from ap_agent.common.setting_kinds import a_bandwidth
from ap_agent.document.bundle import DEFAULT_LIMITS, MANIFEST, UNSIGNED, Bundle, check_members, check_name
from ap_agent.document.trust import Acceptance, Trust, acceptance_of, trust_of

KEPT_VERSIONS = 3
_MAX_JSON_BYTES = 8 * 1024 * 1024
_UNFINISHED = ".unfinished-"
_VERSION = re.compile(r"[0-9]+\.[0-9]+-(none|[0-9]+)-[0-9a-f]{8}(-unsigned)?", re.ASCII)  # `Bundle.name`
_OUR_NAME = re.compile(
    r"(current|versions|usage|\.?(trust|accepted|operator|held)\.json)(\.new|\.scionlab-bw-new|\.aside-[0-9a-f]{8})?"
)


@dataclass(frozen=True)
class Operator:
    """What the operator set with the thesis' command line; None where nothing was set."""

    default_bandwidth_kbit: int | None = None
    link_info: Path | None = None


class Store:
    """One state directory. Reading never creates or changes anything.

    Every method raises `StoreError`, and those that read `NotPermittedError` where the folder is closed to us.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._versions = folder / "versions"
        self._current = folder / "current"

    # --- the current bundle -----------------------------------------------------------------------------------------

    def load(self, *, host_id: str | None) -> Bundle | None:
        """The last good bundle; None where none was ever stored. A corrupt one is a `StoreError` that names it."""
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
        """Whether a start from here would find a bundle, whichever. Cheap; the content is not read."""
        try:
            return (self._current / MANIFEST).is_file()
        except OSError:
            return False

    def save(self, bundle: Bundle, trust: Trust | None = None) -> None:
        """Make `bundle` the current one, durably, and `trust` what counts with it. After an error the former one is
        still current and intact."""
        with as_owner_of(self.folder):
            try:
                self._prepare()
                self._write(bundle)
                if trust is not None:
                    self._write_json(self.trust_file, _sealed(trust.to_json()))
                self._switch(bundle.name)
            except OSError as exc:
                text = f"The bundle {bundle.version} cannot be stored in {self.folder}: {_said(exc)}."
                raise StoreError(f"{text} The former one stays.") from exc
            with contextlib.suppress(OSError):  # what cannot be pruned now is pruned tomorrow; the bundle is stored
                self._prune(bundle.name)

    def check_place(self) -> None:
        """Whether the folder is ours, or may become it: nothing in a folder of somebody else is written, deleted or
        given another mode. Raises `StoreError` with the remedy, `OSError`."""
        if not self.folder.is_dir():
            return
        names = {one.name for one in self.folder.iterdir()} - {"lost+found"}
        foreign = sorted(name for name in names if not _OUR_NAME.fullmatch(name))
        if foreign and not self._is_marked():
            shown = ", ".join(foreign[:3]) + (f" and {len(foreign) - 3} more" if len(foreign) > 3 else "")
            raise StoreError(
                f"state_dir = {self.folder} holds what is not the agent's ({shown}). Choose a folder that does not "
                "exist yet; the agent makes it.",
                retryable=False,
            )
        mode = stat.S_IMODE(self.folder.stat().st_mode)
        if not names and mode & 0o077:
            raise StoreError(
                f"state_dir = {self.folder} is empty and open to other users (mode {mode:04o}), so it may be "
                f"somebody's. If it is the agent's, run `chmod 700 {self.folder}`; else choose a folder that does not "
                "exist yet.",
                retryable=False,
            )

    def _is_marked(self) -> bool:
        """Whether an agent kept its state here, whatever somebody laid beside it."""
        try:
            return self._current.readlink().parent == Path("versions")
        except OSError:
            return self.trust_file.is_file() and self._versions.is_dir()

    def _prepare(self) -> None:
        self.check_place()
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync(self.folder.parent)
        if stat.S_IMODE(self.folder.stat().st_mode) & 0o077:
            self.folder.chmod(0o700)
        if not self._versions.is_dir():
            self._versions.mkdir(mode=0o700)
            _sync(self.folder)
        for left in self._versions.glob(f"{_UNFINISHED}*"):  # of a process that was killed
            shutil.rmtree(left)

    def _write(self, bundle: Bundle) -> None:
        final = self._versions / bundle.name
        if _holds(final, bundle):
            return
        unfinished = self._versions / f"{_UNFINISHED}{bundle.name}"
        _write_tree(unfinished, bundle)
        if final.exists():  # its name says the same content, but it was damaged since
            damaged = self._versions / f"{_UNFINISHED}damaged-{bundle.name}"
            final.rename(damaged)
        unfinished.rename(final)
        _sync(self._versions)

    def _switch(self, name: str) -> None:
        new = self.folder / "current.new"
        for path in (new, self._current):
            _set_aside(path)
        new.unlink(missing_ok=True)
        new.symlink_to(Path("versions") / name)
        new.replace(self._current)
        _sync(self.folder)

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
        """What was stored with the last bundle; None where nothing was."""
        document = self._read_json(self.trust_file, "the agent repairs it as far as it can")
        try:
            return trust_of(document) if document is not None else None
        except ValueError as exc:
            raise StoreError(f"{self.trust_file} is damaged ({exc}); the agent repairs it as far as it can.") from exc

    def save_trust(self, trust: Trust) -> None:
        """Store it without a bundle: after a repair."""
        self._save_json(self.trust_file, _sealed(trust.to_json()))

    def load_acceptance(self) -> Acceptance | None:
        """What `accept-older` stored and no bundle has used up."""
        remedy = "delete it, and run `accept-older` again if it is needed"
        document = self._read_json(self.acceptance_file, remedy)
        try:
            return acceptance_of(document) if document is not None else None
        except ValueError as exc:
            raise StoreError(f"{self.acceptance_file} is damaged ({exc}); {remedy}.") from exc

    def save_acceptance(self, acceptance: Acceptance) -> None:
        self._save_json(self.acceptance_file, _sealed(acceptance.to_json()))

    def drop_acceptance(self) -> None:
        """Best effort: once another bundle is installed, an acceptance that is left over covers nothing."""
        with as_owner_of(self.folder), contextlib.suppress(OSError):
            self.acceptance_file.unlink(missing_ok=True)

    @property
    def hold_file(self) -> Path:
        return self.folder / "held.json"

    def load_hold(self) -> Hold | None:
        """The configuration that is held back, if one is. A damaged file is none: then the hold begins anew."""
        try:
            document = self._read_json(self.hold_file, "the agent replaces it")
            return hold_of(document) if document is not None else None
        except (StoreError, ValueError):
            return None

    def save_hold(self, hold: Hold) -> None:
        self._save_json(self.hold_file, _sealed(hold.to_json()))

    def drop_hold(self) -> None:
        """Best effort: a hold that is left over is of another configuration in force, and holds nothing."""
        with as_owner_of(self.folder), contextlib.suppress(OSError):
            self.hold_file.unlink(missing_ok=True)

    def _read_json(self, path: Path, remedy: str) -> Any:
        try:
            data, _ = read_plain(path, _MAX_JSON_BYTES)
            return _unsealed(parse_json(data))
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise _unreadable(path, exc) from exc
        except ValueError as exc:
            raise StoreError(f"{path} is damaged; {remedy}.") from exc

    def _save_json(self, path: Path, document: Any) -> None:
        try:
            with as_owner_of(self.folder):
                self._prepare()
                self._write_json(path, document)
        except OSError as exc:
            raise StoreError(f"{path} cannot be written: {_said(exc)}.") from exc

    def _write_json(self, path: Path, document: Any) -> None:
        _set_aside(path)
        write_atomically(path, json.dumps(document, indent=1).encode() + b"\n", mode=0o600)

    # --- what the operator set by hand ------------------------------------------------------------------------------

    @property
    def operator_file(self) -> Path:
        return self.folder / "operator.json"

    def load_operator(self) -> Operator:
        """What `-b` and `-p` stored; nothing where they never did."""
        try:
            data, _ = read_plain(self.operator_file, _MAX_JSON_BYTES)
            return _operator(parse_json(data))
        except FileNotFoundError:
            return Operator()
        except OSError as exc:
            raise _unreadable(self.operator_file, exc) from exc
        except ValueError as exc:
            raise StoreError(
                f"{self.operator_file} cannot be used: {exc}. Delete it, and set -b and -p again if you used them."
            ) from exc

    def save_operator(self, operator: Operator) -> None:
        """Store what `-b` and `-p` set."""
        document: dict[str, Any] = {}
        if operator.default_bandwidth_kbit is not None:
            document["default_bandwidth_kbit"] = operator.default_bandwidth_kbit
        if operator.link_info is not None:
            document["link_info"] = str(operator.link_info)
        self._save_json(self.operator_file, document)


def _operator(document: object) -> Operator:
    if not isinstance(document, dict) or not set(document) <= {"default_bandwidth_kbit", "link_info"}:
        raise ValueError("it holds something else than default_bandwidth_kbit and link_info")
    kbit, link_info = document.get("default_bandwidth_kbit"), document.get("link_info")
    if kbit is not None:
        try:
            a_bandwidth(kbit)
        except ValueError as exc:
            raise ValueError(f"default_bandwidth_kbit = {kbit!r}: {str(exc).rstrip('.')}") from exc
    if link_info is not None and not isinstance(link_info, str):
        raise ValueError("link_info is no path")
    return Operator(kbit, Path(link_info) if link_info is not None else None)


_SEAL = "sha256"


def _sealed(document: dict[str, Any]) -> dict[str, Any]:
    """With a hash of the rest: one flipped bit can leave a well-formed document that trusts nobody, or another key."""
    return document | {_SEAL: _hash_of(document)}


def _unsealed(document: object) -> dict[str, Any]:
    """Raises `ValueError` where the hash is not that of the rest."""
    if not isinstance(document, dict):
        raise ValueError("no object")
    rest = {key: value for key, value in document.items() if key != _SEAL}
    if document.get(_SEAL) != _hash_of(rest):
        raise ValueError("another content than was written")
    return rest


def _hash_of(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


# --- files ----------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, data: bytes, *, mode: int) -> None:
    """Readers see the old content or the new, also after a power cut. Raises `OSError`, also for a folder of that
    name: it is somebody's."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    new = path.with_name(f".{path.name}.scionlab-bw-new")  # a name that nobody else gives
    _write_file(new, data, mode)
    new.replace(path)
    _sync(path.parent)


def _set_aside(path: Path) -> None:
    """Rename a folder that has the name of a file of ours in our own folder; whoever made it finds it beside."""
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}.aside-{secrets.token_hex(4)}"))


def _write_tree(folder: Path, bundle: Bundle) -> None:
    folder.mkdir(mode=0o700)
    for name, data in sorted(bundle.members.items()):
        check_name(name)  # again, beside the only place that turns names into paths
        path = folder / name
        _make_folders(path.parent)
        _write_file(path, data, 0o600)
    for inner in [one for one in folder.rglob("*") if one.is_dir()]:
        _sync(inner)
    _sync(folder)


def _make_folders(folder: Path) -> None:
    """Like mkdir(parents=True), which would give the folders between the default mode."""
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700)


def _write_file(path: Path, data: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with open(descriptor, "wb") as stream:  # noqa: PTH123  # of a descriptor
        os.fchmod(stream.fileno(), mode)  # the health file is everybody's, whatever umask the unit has
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """Make renames and new names in a folder survive a power cut (fsync(2): the folder needs its own)."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
            raise BundleError(f'"{path.name}" is no plain file.', code="member_kind")
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
