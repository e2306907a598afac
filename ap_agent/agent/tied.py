"""Runs a program that ends with its parent and cannot gain rights: `python -m ap_agent.agent.tied PARENT COMMAND...`

The command replaces this process. Both settings survive execve(2). Not setpriv(1), which calls capset(2), denied by the
agent's unit; not in the agent after fork(2), because it has threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PDEATHSIG, _NO_NEW_PRIVS = 1, 38  # <linux/prctl.h>


def main(parent: int, command: list[str]) -> None:
    """Never returns. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option, argument in ((_PDEATHSIG, signal.SIGKILL), (_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, argument, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if os.getppid() != parent:  # it ended before this took effect
        raise SystemExit("The agent has ended.")
    os.execv(command[0], command)  # noqa: S606  # this very process is to be tied


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
