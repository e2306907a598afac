"""A place for the self-test that has nothing of the host in it and leaves nothing behind, whatever ends it.

It runs in network, mount and process namespaces of its own. The kernel ends every process in them when the first one
ends, that one when its parent ends (PR_SET_PDEATHSIG), and with the last process all of its networks are gone: names
of namespaces lie on a /run that only they see. So there is nothing to clean up after SIGKILL, two self-tests cannot
meet, and the host's network is not even in reach.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from measuring.netns import LabError

_MNT_DETACH = 2  # <linux/mount.h>
_PACKAGE_FOLDER = Path(__file__).resolve().parents[2]
# The programs that are needed, with the package of Debian that has each.
PROGRAMS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "setpriv": "util-linux"}


def start(module: str) -> subprocess.Popen[str]:
    """`python -m module` in namespaces of its own; it ends at the latest with the calling thread.

    A session of its own as well: Ctrl-C reaches only the caller, who ends it by `kill`.
    """
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *apart, sys.executable, "-m", module],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_PACKAGE_FOLDER,
        start_new_session=True,
    )


def settle_in() -> None:
    """To be called first inside: names of namespaces that are made from here on are nobody else's.

    The host's names are let go of: as long as they stayed mounted here, a namespace that somebody deletes would live.
    Raises `LabError`.
    """
    if os.getpid() != 1:
        raise LabError("The self-test's inner half runs in namespaces of its own only; call `selftest`.")
    libc = ctypes.CDLL(None, use_errno=True)
    while libc.umount2(b"/run/netns", _MNT_DETACH) == 0:
        pass
    if libc.mount(b"selftest", b"/run", b"tmpfs", 0, b"size=1m") != 0:
        raise LabError(f"a /run of its own cannot be mounted: {os.strerror(ctypes.get_errno())}")
    Path("/run/netns").mkdir()
    _load_ifb()


def _load_ifb() -> None:
    """The module would make two devices of its own on the host, ifb0 and ifb1, if the kernel loaded it by itself."""
    if not Path("/sys/module/ifb").exists() and shutil.which("modprobe") is not None:
        subprocess.run(["modprobe", "--quiet", "ifb", "numifbs=0"], capture_output=True, check=False, timeout=30)
