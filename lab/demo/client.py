"""The users' command line client on a host of the lab."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lab.demo.world import SITE_ADDRESS
from lab.forward import PortForward
from measuring.netns import Namespace


@contextmanager
def running_client(host: Namespace, token: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`scionlab-bw` with these arguments, killed at the end. It accepts http to 127.0.0.1 alone, so the site is
    forwarded there."""
    with host.call(lambda: PortForward(host, SITE_ADDRESS, 0)) as site:
        url = f"http://127.0.0.1:{site.local_port}"
        process = host.popen(
            [sys.executable, "-m", "scionlab_bw", *arguments],
            env=os.environ | {"SCIONLAB_BW_URL": url, "SCIONLAB_BW_TOKEN": token},
            stdin=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def run_client(host: Namespace, token: str, *arguments: str, stdin: str = "") -> tuple[int, str]:
    """To its end; its exit code and what it prints."""
    with running_client(host, token, *arguments) as process:
        out, _ = process.communicate(stdin, timeout=90)
    return process.returncode, out
