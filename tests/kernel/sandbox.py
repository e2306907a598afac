"""Runs a command as a unit of ours would: user, capabilities, read-only file system, families and system calls.

    python -m tests.kernel.sandbox UNIT FOLDER... -- COMMAND...

systemd itself is not to be had in a test (it wants to be process 1), so this reads the unit and does with the same
kernel features what it does: a mount namespace in which all but these folders is read-only and /proc shows one's own
processes, of /sys/fs/bpf the one folder that the unit binds there, a user without rights, the ambient capabilities, and
seccomp filters by libseccomp from the unit's own lists, with the groups as `systemd-analyze` expands them. In the end
the command replaces this process. Not shown: PrivateUsers=, IPAddressDeny=.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ERRNO, ALLOW = 0x0005_0000, 0x7FFF_0000  # SCMP_ACT_ERRNO(x) is ERRNO | x  (seccomp.h)
EPERM, EAFNOSUPPORT = 1, 97
EQ, MASKED_EQ = 4, 7  # enum scmp_compare
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000
GROUP = 65534
USERS = {"scionlab-bw": 65534, "scionlab-bw-limiter": 65533, "scionlab": 65532}  # of User=
CLONE_NEWNS = 0x0002_0000  # <linux/sched.h>
REPOSITORY = Path(__file__).resolve().parents[2]
MAX_FAMILY = 46  # AF_MAX of <linux/socket.h>
# What systemd always allows beside a list, so that the program can be started at all (seccomp-util.c).
ALWAYS = ("execve", "exit", "exit_group", "getrlimit", "rt_sigreturn", "sigreturn")


class Comparison(ctypes.Structure):
    """struct scmp_arg_cmp"""

    _fields_ = (("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def directives(unit: Path) -> dict[str, list[str]]:
    """Key -> the values, in order; a repeated key adds."""
    found: dict[str, list[str]] = defaultdict(list)
    for line in unit.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith(("#", "[")):
            found[key].append(value)
    return found


def words(found: dict[str, list[str]], key: str) -> list[str]:
    return " ".join(found[key]).split()


def expanded(names: list[str]) -> set[str]:
    """System calls of a SystemCallFilter=, groups resolved. Raises `CalledProcessError` for an unknown group."""
    calls: set[str] = set()
    for name in names:
        if not name.startswith("@"):
            calls.add(name)
            continue
        lines = subprocess.run(
            ["systemd-analyze", "syscall-filter", "--no-pager", name], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        calls |= expanded([line.strip() for line in lines[1:] if line.strip() and not line.strip().startswith("#")])
    return calls


def load_filters(found: dict[str, list[str]]) -> None:
    """In this process, for good. What is denied by argument first: the last filter allows no further ones."""
    lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_load.argtypes = lib.seccomp_release.argtypes = [ctypes.c_void_p]
    numbers = (ctypes.c_uint32, ctypes.c_int, ctypes.c_uint)
    lib.seccomp_rule_add_array.argtypes = [ctypes.c_void_p, *numbers, ctypes.POINTER(Comparison)]

    def rule(context: int, action: int, call: str, *comparisons: tuple[int, int, int, int]) -> None:
        number = lib.seccomp_syscall_resolve_name(call.encode())
        if number < 0:
            return  # not of this architecture
        array = (Comparison * len(comparisons))(*(Comparison(*one) for one in comparisons))
        if lib.seccomp_rule_add_array(context, action, number, len(comparisons), array) != 0:
            raise RuntimeError(f"no rule for {call}")

    def load(context: int) -> None:
        if lib.seccomp_load(context) != 0:
            raise RuntimeError("the filter was refused")
        lib.seccomp_release(context)

    denied = lib.seccomp_init(ALLOW)
    if found["MemoryDenyWriteExecute"] == ["yes"]:
        both = PROT_WRITE | PROT_EXEC
        rule(denied, ERRNO | EPERM, "mmap", (2, MASKED_EQ, both, both))
        for call in ("mprotect", "pkey_mprotect"):
            rule(denied, ERRNO | EPERM, call, (2, MASKED_EQ, PROT_EXEC, PROT_EXEC))
        rule(denied, ERRNO | EPERM, "shmat", (2, MASKED_EQ, SHM_EXEC, SHM_EXEC))
    families = {getattr(socket, name) for name in words(found, "RestrictAddressFamilies")}
    for family in set(range(MAX_FAMILY)) - families:
        rule(denied, ERRNO | EAFNOSUPPORT, "socket", (0, EQ, family, 0))
    load(denied)
    allowed = lib.seccomp_init(ERRNO | EPERM)
    for call in sorted(expanded(["@default", *ALWAYS, *words(found, "SystemCallFilter")])):
        rule(allowed, ALLOW, call)
    load(allowed)


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True, stdin=subprocess.DEVNULL)


def own_file_system(found: dict[str, list[str]], writable: list[Path]) -> None:
    """Read-only but for these folders, in a mount namespace of this process; only one's own processes in /proc."""
    hidden = Path(tempfile.mkdtemp(dir=writable[0].parent))
    show_to_others(hidden)
    for folder in writable:
        mount("--bind", folder, folder)
    if found["ProtectKernelTunables"] == ["yes"]:
        mount("--rbind", "/sys", "/sys")
        mount("-o", "remount,bind,ro", "/sys")
    for bound in found["BindPaths"]:
        own_maps(Path(bound), hidden / "maps", USERS[found["User"][-1]])
    keep = (*map(str, writable), "/proc", "/sys", "/dev")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        at = line.split()[4]
        if not at.startswith(keep) and os.path.ismount(at):  # not one that another mount hides
            read_only(at)
    mount("-t", "proc", "-o", "nosuid,nodev,noexec,hidepid=invisible,subset=pid", "proc", "/proc")


def read_only(mounted: str) -> None:
    """Remount it so. What another process takes away meanwhile (a namespace of another test: removing its file takes
    the mount out of every mount namespace) needs no more."""
    try:
        mount("-o", "remount,bind,ro", mounted)
    except subprocess.CalledProcessError:
        if os.path.ismount(mounted):
            raise


def own_maps(folder: Path, kept: Path, user: int) -> None:
    """A bpf file system as systemd mounts it, for root alone; then what the unit leaves of it."""
    parent = folder.parent
    mount("-t", "bpf", "-o", "nosuid,nodev,noexec,mode=0700", "bpf", parent)
    folder.mkdir(0o700)
    os.chown(folder, user, GROUP)
    kept.mkdir()
    mount("--bind", folder, kept)
    mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", parent)
    folder.mkdir()
    mount("--bind", kept, folder)
    mount("-o", "remount,bind,ro", parent)


def show_to_others(shelf: Path) -> None:
    """Let users without rights read interpreter and checkout below a folder of root's, in a mount namespace of this
    process. `shelf` is an empty folder."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("--make-rprivate", "/")
    for closed, inside in closed_to_others([Path(sys.base_prefix), REPOSITORY]).items():
        # Show what is needed below the closed folder, without the rest of it.
        shelves = {path: shelf / path.relative_to("/").as_posix().replace("/", "-") for path in inside}
        for path, kept in shelves.items():
            kept.mkdir()
            mount("--bind", path, kept)
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", closed)
        for path, kept in shelves.items():
            path.mkdir(parents=True)
            mount("--bind", kept, path)


def closed_to_others(paths: list[Path]) -> dict[Path, list[Path]]:
    """The outermost folders above `paths` that only their owner may enter, and which of `paths` are inside."""
    found: dict[Path, list[Path]] = defaultdict(list)
    for path in paths:
        for above in reversed(path.parents):
            if not above.stat().st_mode & 0o001:
                found[above].append(path)
                break
    return found


def main(unit: Path, writable: list[Path], command: list[str]) -> None:
    """Never returns."""
    found = directives(unit)
    if os.geteuid() == 0:
        own_file_system(found, writable)
        kept = [f"+{one.removeprefix('CAP_').lower()}" for one in words(found, "AmbientCapabilities")]
        capability = ",".join(["-all", *kept])
        user = USERS[found["User"][-1]]
        rights = ["setpriv", f"--reuid={user}", f"--regid={GROUP}", "--clear-groups", "--no-new-privs"]
        rights += [f"--inh-caps={capability}", f"--ambient-caps={capability}", f"--bounding-set={capability}"]
        again = [sys.executable, "-m", "tests.kernel.sandbox", str(unit), *map(str, writable), "--", *command]
        os.execvp(rights[0], [*rights, *again])  # noqa: S606  this very process is to have the rights
    os.umask(int(found["UMask"][-1], 8))
    load_filters(found)
    os.execv(command[0], command)  # noqa: S606  as above


if __name__ == "__main__":
    at = sys.argv.index("--")
    main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:at]], sys.argv[at + 1 :])
