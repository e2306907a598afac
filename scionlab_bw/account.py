"""Login and logout: create, store and revoke the token."""

from __future__ import annotations

import getpass
import socket
import sys
from argparse import Namespace

from scionlab_bw import credentials, tables
from scionlab_bw.client import Service
from scionlab_bw.credentials import Credentials
from scionlab_bw.errors import UsageError


def login(arguments: Namespace) -> int:
    """Create or accept the token, and store it; neither it nor a password is ever an argument."""
    url = credentials.checked_url(arguments.url)
    token = _secret("API token: ") if arguments.token else _token_for_password(url, arguments.email)
    person = Service(url, token).get("profile/").content
    credentials.save(Credentials(url, token))
    print(f"Logged in at {url} as {tables.clean(person['email'])}. The token is stored in {credentials.path()}.")
    return 0


def _token_for_password(url: str, email: str | None) -> str:
    email = email or _line("Email address: ")
    body = {"email": email, "password": _secret("Password: "), "name": f"scionlab-bw on {socket.gethostname()}"[:100]}
    return str(Service(url).post("token/", body, is_repeatable=False)["token"])


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip()


def _secret(question: str) -> str:
    """Prompted without echo on a terminal; otherwise the first line."""
    found = getpass.getpass(question) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    if not found:
        raise UsageError("No input.")
    return found


def logout(service: Service, _arguments: Namespace) -> int:
    service.delete("token/")
    credentials.forget()
    print("The token was revoked and deleted.")
    return 0
