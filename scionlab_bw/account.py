"""Login and logout: create, store and revoke the token."""

from __future__ import annotations

import getpass
import secrets
import socket
import sys
from argparse import Namespace

from scionlab_bw import credentials
from scionlab_bw.client import Service
from scionlab_bw.credentials import Credentials
from scionlab_bw.errors import NotAllowed, UsageError
from terminal import clean


def login(arguments: Namespace) -> int:
    """Create or accept the token, and store it; neither it nor a password is ever an argument."""
    url = credentials.checked_url(arguments.url)
    former = _former()
    with credentials.room() as store:
        if arguments.token:
            made = Credentials(url, credentials.checked_token(_secret("API token: "), "the input"))
        else:
            made = _for_password(url, arguments.email, former)
        person = Service.of(made).get("profile/").content
        store(made)
    print(
        f"Logged in at {url} as {clean(person['email'])}. The token is stored in {credentials.path()}"
        + (f", in place of the one for {former.url}" if former else "")
        + "."
    )
    if former and (former.url, former.name) != (made.url, made.name):
        print("That one is still valid: revoke it on your profile page there if you do not use it elsewhere.")
    return 0


def _former() -> Credentials | None:
    """What is stored now, as far as it can be read."""
    try:
        return credentials.stored()
    except NotAllowed:
        return None


def _for_password(url: str, email: str | None, former: Credentials | None) -> Credentials:
    """A token of this installation's own name: the service replaces one of the same name, and two hosts may have the
    same host name."""
    name = former.name if former and former.url == url else ""
    name = name or f"scionlab-bw on {socket.gethostname()[:60]} ({secrets.token_hex(3)})"
    body = {"email": email or _line("Email address: "), "password": _secret("Password: "), "name": name}
    return Credentials(url, str(Service(url).post("token/", body, is_repeatable=False)["token"]), name)


def _line(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    return credentials.pasted(_input()).strip()


def _secret(question: str) -> str:
    """Prompted without echo on a terminal; otherwise the first line."""
    try:
        is_terminal = sys.stdin is not None and sys.stdin.isatty()
        found = getpass.getpass(question) if is_terminal else credentials.pasted(_input())
    except EOFError:
        found = ""
    if not found:
        raise UsageError("No input.")
    return found


def _input() -> str:
    """A line of standard input. Raises `UsageError`."""
    try:
        return sys.stdin.readline() if sys.stdin is not None else ""
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            "Standard input is no text in this terminal's encoding. Type it, or save it as UTF-8."
        ) from None


def logout(service: Service, _arguments: Namespace) -> int:
    """The stored token goes in any case: one that ended, or may not revoke itself, is of no more use here."""
    said, code = "The token was revoked and deleted.", 0
    try:
        service.delete("token/")
    except NotAllowed as exc:
        said = f"The token had already ended, and was deleted here. ({exc})"
        if not exc.is_ended:
            said, code = f"The token was deleted here, and not revoked: {exc}", exc.exit_code
    if credentials.of_environment() is not None:
        said = f"{said.replace(' and deleted', '')} It is still in {credentials.TOKEN_VARIABLE}: unset it."
    else:
        credentials.forget()
    print(clean(said))
    return code
